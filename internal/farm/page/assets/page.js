// What the pages do better with script. Without it filters are sent by their
// button, and pages that change are loaded again by <noscript>.
"use strict";
(() => {
  const live = () => document.getElementById("live");
  let running = null; // the request under way
  let seen = "";      // ETag of what is shown

  // swap replaces #live by that of the page at url. The parsed page is inert: its
  // scripts do not run.
  async function swap(url) {
    running?.abort();
    const mine = running = new AbortController();
    const answer = await fetch(url, { signal: mine.signal, cache: "no-cache", credentials: "same-origin" });
    if (!answer.ok) throw new Error(answer.status + " " + answer.statusText);
    const tag = answer.headers.get("ETag") ?? "";
    if (tag && tag === seen) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const fresh = page.getElementById("live");
    if (mine.signal.aborted || !fresh) return;
    seen = tag;
    const focused = document.activeElement?.id;
    const open = [...live().querySelectorAll("details[open][id]")].map(d => d.id);
    live().replaceWith(fresh);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused && document.activeElement?.id !== focused) document.getElementById(focused)?.focus();
    say(fresh.dataset.says);
  }

  // say tells readers of the screen what is new, once.
  function say(text) {
    const status = document.getElementById("status");
    if (status && text && status.textContent !== text) status.textContent = text;
  }

  function fail(err) {
    if (err.name !== "AbortError") say("Not up to date: " + err.message);
  }

  for (const form of document.querySelectorAll("form[data-live]")) {
    let timer;
    const send = () => {
      const query = new URLSearchParams();
      for (const [name, value] of new FormData(form)) if (value) query.append(name, value);
      const url = location.pathname + (query.size ? "?" + query : "");
      history.replaceState(null, "", url);
      swap(url).catch(fail);
    };
    form.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(send, 200); });
    form.addEventListener("submit", event => { event.preventDefault(); clearTimeout(timer); send(); });
  }

  // A page that changes by itself says how often to look, in seconds.
  const again = () => {
    const every = Number(live()?.dataset.every);
    if (!every) return;
    setTimeout(() => {
      const quiet = document.visibilityState !== "visible" || running && !running.signal.aborted && document.activeElement?.form?.dataset.live !== undefined;
      (quiet ? Promise.resolve() : swap(location.href).catch(fail)).then(again);
    }, every * 1000);
  };
  again();
})();
