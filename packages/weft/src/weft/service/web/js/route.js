// Where the page is: `#/jobs?state=running`. What can be chosen is in the address, so a view can be shared.
import { useEffect, useState } from "./lib.js";

export function readRoute() {
  const [path, asked = ""] = location.hash.replace(/^#/, "").split("?");
  let parts = [];
  try {
    parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    parts = [];
  }
  return {
    view: parts[0] || "cluster",
    parts: parts.slice(1),
    query: Object.fromEntries(new URLSearchParams(asked)),
  };
}

/** Whether the address asks for a display on a wall, without anything to press: `/?kiosk` or `#/cluster?kiosk`. */
export const isKiosk = () =>
  new URLSearchParams(location.search).has("kiosk") || "kiosk" in readRoute().query;

/** The address of a view; fields that are empty are left out. */
export function link(view, parts = [], query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const path = [view, ...parts].map(encodeURIComponent).join("/");
  return `#/${path}${given.length ? "?" + new URLSearchParams(given) : ""}`;
}

/** Change fields of the query in place: no new entry of the history for every key. */
export function setQuery(changes) {
  const now = readRoute();
  history.replaceState(null, "", link(now.view, now.parts, { ...now.query, ...changes }));
  window.dispatchEvent(new HashChangeEvent("hashchange"));
}

export const go = (view, parts, query) => {
  location.hash = link(view, parts, query);
};

export function useRoute() {
  const [route, setRoute] = useState(readRoute());
  useEffect(() => {
    const listener = () => setRoute(readRoute());
    window.addEventListener("hashchange", listener);
    listener(); // the address may have changed before this was heard
    return () => window.removeEventListener("hashchange", listener);
  }, []);
  return route;
}
