// Waiting for what is to happen, never for time to pass.

const LOOK_EVERY_MS = 10;

export const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** What `look` gives, as soon as that is something. */
export async function eventually(what, look, deadline = 30_000) {
  const end = Date.now() + deadline;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > end) throw new Error(`waited in vain for ${typeof what === "function" ? what() : what}`);
    await pause(LOOK_EVERY_MS);
  }
}
