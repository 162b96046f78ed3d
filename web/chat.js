// The chat page: a conversation over /v1/chat/completions, with thinking and tool calls shown.

import { streamEvents } from "./api.js";
import { byId, make, showText } from "./dom.js";

const MAX_TOOL_CALLS = 64; // of one answer

let messages = []; // as the API takes them; another array is another conversation
let running = null; // the AbortController of the answer under way

// One turn of the conversation on the page.
class Turn {
  constructor(role) {
    this.root = make("article", { class: `turn ${role}` }, make("h2", {}, role));
    this.body = make("div");
    this.root.append(this.body);
    byId("log").append(this.root);
  }

  think(text) {
    if (!this.thinking) {
      this.thinking = make("div", { class: "text" });
      this.thinkingBox = make("details", { class: "thinking", open: "" },
        make("summary", {}, "Thinking"), this.thinking);
      this.root.insertBefore(this.thinkingBox, this.body);
    }
    this.thinking.textContent = text;
  }

  // The answer has begun: what led to it folds away, unless it was opened or closed by hand.
  endThinking() {
    if (this.thinkingBox && !this.thinkingFolded) this.thinkingBox.open = false;
    this.thinkingFolded = true;
  }

  showCalls(calls) {
    this.callNodes ??= [];
    calls.forEach((call, index) => {
      if (!this.callNodes[index]) {
        const name = make("strong");
        const text = make("pre");
        const box = make("div", { class: "tool" }, "Calls ", name, text);
        this.root.append(box);
        this.callNodes[index] = { name, text, box };
      }
      this.callNodes[index].name.textContent = call.function.name;
      this.callNodes[index].text.textContent = call.function.arguments;
    });
  }

  // A field for the result of each call, and one button that sends them all.
  askForResults(calls, onResults) {
    const fields = calls.map((call, index) => {
      const field = make("textarea", { rows: "2" });
      this.callNodes[index].box.append(make("label", {}, `Result of ${call.function.name} `, field));
      return field;
    });
    const button = make("button", { type: "button", class: "results" }, "Send results");
    button.addEventListener("click", () => {
      button.remove();
      for (const field of fields) field.readOnly = true;
      onResults(fields.map((field) => field.value));
    });
    this.root.append(button);
    fields[0]?.focus();
  }

  note(text, kind = "meta") {
    this.root.append(make("p", kind === "error" ? { class: "error", role: "alert" } : { class: kind }, text));
  }
}

function scrollDown(force) {
  const log = byId("log");
  const near = log.scrollHeight - log.scrollTop - log.clientHeight < 80;
  if (near || force) log.scrollTop = log.scrollHeight;
}

// The request's fields from the settings. Throws when the tools are no JSON array.
function requestBody() {
  const system = byId("system").value.trim();
  const body = {
    messages: system ? [{ role: "system", content: system }, ...messages] : [...messages],
    stream: true,
    stream_options: { include_usage: true },
  };
  const temperature = byId("temperature").value;
  if (temperature !== "") body.temperature = Number(temperature);
  const most = byId("max-tokens").value;
  if (most !== "") body.max_tokens = Number(most);
  const thinking = byId("thinking").value;
  if (thinking) {
    const on = thinking === "on";
    body.chat_template_kwargs = { enable_thinking: on, thinking: on };
  }
  const tools = byId("tools").value.trim();
  if (tools) {
    body.tools = JSON.parse(tools);
    if (!Array.isArray(body.tools)) throw new SyntaxError("an array is needed");
  }
  return body;
}

// What has come of an answer so far.
function addDelta(answer, delta) {
  answer.thinking += delta.reasoning_content ?? "";
  answer.content += delta.content ?? "";
  for (const part of delta.tool_calls ?? []) {
    const index = part.index ?? answer.calls.length;
    if (index < 0 || index >= MAX_TOOL_CALLS) continue;
    const call = answer.calls[index] ??= { id: "", type: "function", function: { name: "", arguments: "" } };
    if (part.id) call.id = part.id;
    call.function.name += part.function?.name ?? "";
    call.function.arguments += part.function?.arguments ?? "";
  }
}

function describe(answer, begin, first) {
  const parts = [];
  if (answer.finish && answer.finish !== "stop") parts.push(`ended by ${answer.finish}`);
  if (answer.usage) {
    const { prompt_tokens: prompt, completion_tokens: made } = answer.usage;
    parts.push(`${prompt} prompt tokens, ${made} tokens`);
    const seconds = (performance.now() - first) / 1000;
    if (made > 1 && seconds > 0) parts.push(`${((made - 1) / seconds).toFixed(1)} tokens/s`);
  }
  if (first) parts.push(`first token after ${((first - begin) / 1000).toFixed(2)} s`);
  return parts.join(" · ");
}

async function answerConversation() {
  const turn = new Turn("assistant");
  const conversation = messages;
  const answer = { content: "", thinking: "", calls: [], finish: null, usage: null };
  let body;
  try {
    body = requestBody();
  } catch (error) {
    turn.note(`The tools in the settings are no JSON: ${error.message}`, "error");
    return;
  }
  const control = running = new AbortController();
  setBusy(turn, true);
  const begin = performance.now();
  let first = 0;
  try {
    for await (const chunk of streamEvents("v1/chat/completions", body, control.signal)) {
      if (chunk.error) throw new Error(chunk.error.message);
      if (chunk.usage) answer.usage = chunk.usage;
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      addDelta(answer, choice.delta ?? {});
      answer.finish = choice.finish_reason ?? answer.finish;
      if (!first && (answer.thinking || answer.content || answer.calls.length)) first = performance.now();
      if (answer.thinking) turn.think(answer.thinking);
      if (answer.content || answer.calls.length) turn.endThinking();
      showText(turn.body, answer.content);
      turn.showCalls(answer.calls);
      scrollDown(false);
    }
    if (!answer.finish) throw new Error("the stream ended before the answer did");
  } catch (error) {
    if (control.signal.aborted) turn.note("stopped");
    else turn.note(error.message, "error");
  }
  running = null;
  setBusy(turn, false);
  keep(turn, answer, conversation);
  const text = describe(answer, begin, first);
  if (text) turn.note(text);
  scrollDown(false);
}

// Puts the answer into the conversation, whole or as far as it came.
function keep(turn, answer, conversation) {
  const calls = answer.calls.filter(Boolean);
  if (!answer.content && !calls.length) return;
  const message = { role: "assistant", content: answer.content };
  const whole = answer.finish === "tool_calls" || answer.finish === "stop";
  if (calls.length && whole) {
    message.tool_calls = calls;
    turn.askForResults(calls, (results) => {
      results.forEach((content, index) => {
        conversation.push({ role: "tool", tool_call_id: calls[index].id, content });
      });
      answerConversation();
    });
  }
  conversation.push(message);
}

function setBusy(turn, busy) {
  turn.root.classList.toggle("busy", busy);
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
  if (!busy && document.activeElement === document.body) byId("prompt").focus();
}

function send() {
  const prompt = byId("prompt");
  const content = prompt.value.trim();
  if (running || !content) return;
  // Calls that were given no result cannot stay without one.
  const last = messages.at(-1);
  for (const call of last?.tool_calls ?? []) {
    messages.push({ role: "tool", tool_call_id: call.id, content: "" });
  }
  for (const button of document.querySelectorAll("button.results")) button.remove();
  prompt.value = "";
  messages.push({ role: "user", content });
  showText(new Turn("user").body, content);
  scrollDown(true);
  answerConversation();
}

export function startChat() {
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  byId("prompt").addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  });
  const stop = () => running?.abort();
  byId("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") stop();
  });
  byId("reset").addEventListener("click", () => {
    stop();
    messages = [];
    byId("log").replaceChildren();
    byId("prompt").focus();
  });
  byId("prompt").focus();
}
