# One server in a small image.
#
#   docker build -t minichat .
#   docker run --rm -p 127.0.0.1:8080:8080 minichat --dev-auth
#
# Two servers with what they need: docker-compose.yml.

FROM rust:1-bookworm AS build
WORKDIR /src
# Backtraces keep their function names; line tables would make the image several times larger.
ENV CARGO_PROFILE_RELEASE_STRIP=debuginfo
# The dependencies are a layer of their own, built again only when these files change.
COPY Cargo.toml Cargo.lock build.rs ./
COPY proto proto
RUN mkdir src && echo 'fn main() {}' > src/main.rs && touch src/lib.rs && cargo build --release --locked
COPY . .
# Cargo goes by the time of a file, and the files just copied may be older than the empty ones it has built.
RUN touch src/main.rs src/lib.rs && cargo build --release --locked

FROM debian:bookworm-slim
# Certificates for pushes that leave over HTTPS.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /src/target/release/minichat /usr/local/bin/
# A number, so that an orchestrator can see that it is not root.
RUN install -d -o 10001 -g 10001 /data
USER 10001:10001
# Where the embedded database is unless --database says otherwise.
VOLUME /data
ENV MINICHAT_LISTEN=0.0.0.0:8080 MINICHAT_ADMIN_LISTEN=127.0.0.1:9600
EXPOSE 8080 9191
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s \
    CMD ["minichat", "--probe", "http://127.0.0.1:9600/readyz"]
ENTRYPOINT ["minichat"]
