"""What tests/page asks of a server past the page, over a connection of its own."""

import json

# Were it read as markup, it would leave a trace.
MARKUP = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'

SAY = """(async () => {
    const { Minichat } = await import(document.querySelector('script').src.replace('app.js', 'minichat.js'));
    const chat = await new Minichat({ user: sessionStorage.getItem('name') }).connect();
    const message = chat.rooms.get(decodeURIComponent(location.hash.split('/')[2])).send(BODY);
    while (message.state === 'pending') await new Promise((done) => setTimeout(done, 20));
    await chat.close();
    return message.state;
})()"""


def say_raw(tab, body):
    """Sends a body that the page itself would not, into the room that is open."""
    state = tab.value(SAY.replace("BODY", json.dumps(body)))
    if state not in ("sent", "delivered", "read"):
        raise RuntimeError(f"{body!r} is {state}")
