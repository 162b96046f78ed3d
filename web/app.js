// Starts the pages and what they share: tabs, theme, the state of the server.

import { getJson } from "./api.js";
import { startChat } from "./chat.js";
import { byId } from "./dom.js";
import { startLive } from "./live.js";

const THEME = "hayate-theme";
const STATE_PERIOD_MS = 5000;

function showTab(tab) {
  for (const other of document.querySelectorAll('[role="tab"]')) {
    const chosen = other === tab;
    other.setAttribute("aria-selected", String(chosen));
    other.tabIndex = chosen ? 0 : -1;
    byId(other.getAttribute("aria-controls")).hidden = !chosen;
  }
  const page = tab.id.replace("tab-", "");
  if (location.hash !== "#" + page) history.replaceState(null, "", "#" + page);
}

function startTabs() {
  const tabs = [...document.querySelectorAll('[role="tab"]')];
  tabs.forEach((tab, index) => {
    tab.addEventListener("click", () => showTab(tab));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      const next = tabs[(index + step + tabs.length) % tabs.length];
      showTab(next);
      next.focus();
    });
  });
  const show = () => showTab(byId("tab-" + location.hash.slice(1)) ?? tabs[0]);
  addEventListener("hashchange", show);
  show();
}

function startTheme() {
  const root = document.documentElement;
  const stored = localStorage.getItem(THEME);
  if (stored) root.dataset.theme = stored;
  byId("theme").addEventListener("click", () => {
    const dark = getComputedStyle(root).colorScheme === "dark";
    root.dataset.theme = dark ? "light" : "dark";
    localStorage.setItem(THEME, root.dataset.theme);
  });
}

function showState(text, good) {
  const state = byId("state");
  if (state.textContent !== text) state.textContent = text;
  state.classList.toggle("bad", !good);
}

async function watchState() {
  try {
    const response = await fetch("health", { cache: "no-store", signal: AbortSignal.timeout(STATE_PERIOD_MS) });
    showState(response.ok ? "ready" : "not ready", response.ok);
  } catch {
    showState("no connection", false);
  }
  setTimeout(watchState, STATE_PERIOD_MS);
}

async function showModel() {
  const models = await getJson("v1/models");
  byId("model").textContent = models.data[0]?.id ?? "";
}

startTheme();
startTabs();
startChat();
startLive();
watchState();
showModel().catch((error) => showState(error.message, false));
