// The live page: figures of the running server, read from /metrics once a second while it is shown,
// or from /v1/loads where metrics are switched off.

import { ApiError, getJson, request } from "./api.js";
import { Chart } from "./chart.js";
import { byId, make } from "./dom.js";

const PERIOD_MS = 1000;
const TIMEOUT_MS = 5000;

const count = (value) => Math.round(value).toLocaleString();
const percent = (value) => `${(100 * value).toFixed(1)} %`;
const rate = (value) => `${value < 100 ? value.toFixed(1) : count(value)}/s`;
const milliseconds = (value) => `${(1000 * value).toFixed(1)} ms`;

// Samples by name, those of different labels added up. Histogram buckets are left out.
export function parseMetrics(text) {
  const sums = new Map();
  for (const line of text.split("\n")) {
    if (!line || line.startsWith("#")) continue;
    const space = line.lastIndexOf(" ");
    const name = line.slice(0, space).replace(/\{.*$/, "");
    if (name.endsWith("_bucket")) continue;
    sums.set(name, (sums.get(name) ?? 0) + Number(line.slice(space + 1)));
  }
  return sums;
}

// How much a counter grew for each second between two readings; nothing after a restart.
function growth(name, now, before) {
  const grown = now.values.get(name) - before?.values.get(name);
  return grown >= 0 ? grown / (now.at - before.at) : NaN;
}

// The mean of what a histogram took in between two readings.
function mean(name, now, before) {
  const events = now.values.get(name + "_count") - before?.values.get(name + "_count");
  return events > 0 ? (now.values.get(name + "_sum") - before.values.get(name + "_sum")) / events : NaN;
}

const gauge = (name) => (now) => now.values.get(name);
const hitRate = (now, before) => {
  const prompts = growth("sglang:prompt_tokens_total", now, before);
  return prompts > 0 ? growth("sglang:cached_tokens_total", now, before) / prompts : NaN;
};

// Title, figure of two readings, text, upper edge.
const CHARTS = [
  ["Running requests", gauge("sglang:num_running_reqs"), count],
  ["Waiting requests", gauge("sglang:num_queue_reqs"), count],
  ["KV cache in use", gauge("sglang:token_usage"), percent, 1],
  ["Prefix cache hits", hitRate, percent, 1],
  ["Generated tokens", (now, before) => growth("sglang:generation_tokens_total", now, before), rate],
  ["Prompt tokens", (now, before) => growth("sglang:prompt_tokens_total", now, before), rate],
  ["Step time", (now, before) => mean("hayate:step_seconds", now, before), milliseconds],
  ["Time to first token", (now, before) => mean("sglang:time_to_first_token_seconds", now, before), milliseconds],
];

const COUNTERS = [
  ["Requests finished", "sglang:num_requests_total"],
  ["Requests aborted", "sglang:num_aborted_requests_total"],
  ["Prompt tokens", "sglang:prompt_tokens_total"],
  ["of those from the prefix cache", "sglang:cached_tokens_total"],
  ["Tokens generated", "sglang:generation_tokens_total"],
];

async function readMetrics() {
  const response = await request("metrics", { signal: AbortSignal.timeout(TIMEOUT_MS) });
  return parseMetrics(await response.text());
}

// The gauges of /v1/loads under their metrics' names.
async function readLoads() {
  const { loads } = await getJson("v1/loads", { signal: AbortSignal.timeout(TIMEOUT_MS) });
  const sum = (field) => loads.reduce((total, load) => total + (load[field] ?? 0), 0);
  return new Map([
    ["sglang:num_running_reqs", sum("num_running_reqs")],
    ["sglang:num_queue_reqs", sum("num_waiting_reqs")],
    ["sglang:token_usage", sum("token_usage") / Math.max(1, loads.length)],
  ]);
}

class LivePage {
  constructor() {
    this.before = null;
    this.read = readMetrics;
    this.charts = CHARTS.map(([title, figure, format, top]) => ({ figure, chart: new Chart(title, format, top) }));
    byId("charts").append(...this.charts.map(({ chart }) => chart.root));
    this.cells = COUNTERS.map(([title, name]) => {
      const cell = make("td", {}, "–");
      byId("counters").tBodies[0].append(make("tr", {}, make("th", { scope: "row" }, title), cell));
      return { cell, name };
    });
  }

  async poll() {
    try {
      const now = { at: performance.now() / 1000, values: await this.read() };
      for (const { figure, chart } of this.charts) chart.add(figure(now, this.before));
      for (const { cell, name } of this.cells) {
        if (now.values.has(name)) cell.textContent = count(now.values.get(name));
      }
      this.before = now;
      if (this.read === readMetrics) this.note("");
    } catch (error) {
      this.onError(error);
    }
  }

  onError(error) {
    this.before = null;
    for (const { chart } of this.charts) chart.add(NaN);
    if (error instanceof ApiError && error.status === 404 && this.read === readMetrics) {
      this.read = readLoads;
      this.note("Only the load is shown: start the server with --enable-metrics for the rest.");
    } else {
      this.note(`The server gave no figures: ${error.message}`);
    }
  }

  note(text) {
    byId("live-note").hidden = !text;
    if (byId("live-note").textContent !== text) byId("live-note").textContent = text;
  }
}

export function startLive() {
  const page = new LivePage();
  const loop = async () => {
    if (!byId("page-live").hidden && !document.hidden) await page.poll();
    setTimeout(loop, PERIOD_MS);
  };
  loop();
}
