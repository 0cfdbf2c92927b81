// Questions to the server. Answers come as lines: parts while they are computed, the whole answer last.

const PAGE = Array.from(crypto.getRandomValues(new Uint32Array(2)), (n) => n.toString(36)).join("");

export class Refusal extends Error {
  constructor(message, field, status) {
    super(message);
    this.field = field;
    this.status = status;
  }
}

/** The lines of an answer, one by one. A newer question of the same view takes the place of this one. */
export async function* ask(view, given, signal) {
  const response = await patient(view, given, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      const message = JSON.parse(line);
      if ("error" in message) throw new Refusal(message.error, message.field, 0);
      yield message;
    }
  }
}

/** Ask, and again after a moment while the server is busy. */
async function patient(view, given, signal) {
  for (let attempt = 0; ; attempt += 1) {
    const response = await fetch(`api/${view}`, {
      method: "POST",
      headers: { "content-type": "application/json", accept: "application/x-ndjson", "filet-slot": `${PAGE}.${view}` },
      body: JSON.stringify(given),
      signal,
    });
    if (response.ok) return response;
    const { error, field } = await response.json().catch(() => ({ error: `the server answered ${response.status}` }));
    if (response.status !== 503 || attempt === 6) throw new Refusal(error, field, response.status);
    await new Promise((resolve) => setTimeout(resolve, 200 * 2 ** attempt));
    signal.throwIfAborted();
  }
}

/**
 * One view's conversation with the server: only the newest question matters.
 * `hurried` questions are given up at once for a newer one; the others may first show their first part, so that
 * something moves while a slider is dragged.
 */
export class Conversation {
  constructor(view, { begin, part, answer, refusal, renoted, hurried = true }) {
    Object.assign(this, { view, begin, part, answer, refusal, renoted, hurried });
    this.current = null;
    this.next = null;
    this.asked = "";
  }

  /** Ask, unless it is what has been asked already: then only what the view has to know of the run is new. */
  ask(given, note = {}) {
    const key = JSON.stringify(given);
    if (key === this.asked) {
      Object.assign(this.note ?? {}, note);
      this.renoted?.();
      return;
    }
    this.asked = key;
    if (this.current && !this.hurried && !this.current.shown) {
      this.next = [given, note];
      return;
    }
    this.start(given, note);
  }

  /** Ask nothing more, and give up what is under way. */
  stop() {
    this.current?.controller.abort();
    this.current = this.next = null;
    this.asked = "";
  }

  async start(given, note) {
    this.current?.controller.abort();
    const turn = { controller: new AbortController(), shown: false };
    this.current = turn;
    this.next = null;
    this.note = note;
    this.begin?.(given, note);
    try {
      for await (const message of ask(this.view, given, turn.controller.signal)) {
        if (this.current !== turn) return; // stale
        if ("part" in message) this.part?.(message.part, note);
        else this.answer?.(message, note);
        turn.shown = true;
        if (this.next) break;
      }
    } catch (error) {
      if (this.current !== turn || error.name === "AbortError") return;
      if (!this.next) {
        // The refusal of a question that a newer one has outdated says nothing of what the fields hold now.
        if (error.status !== 409) this.refusal?.(error instanceof Refusal ? error : new Refusal(offline(error), null, 0), note);
        this.asked = "";
      }
    }
    if (this.current !== turn) return;
    this.current = null;
    if (this.next) {
      turn.controller.abort();
      this.start(...this.next);
    }
  }
}

const offline = (error) =>
  error instanceof TypeError ? "the server does not answer; is filet explore still running?" : String(error.message ?? error);
