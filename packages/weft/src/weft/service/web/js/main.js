// The frame around the views: who is signed in, where we are, whether the service is there.
import { get, onSignedOut, remove } from "./api.js";
import { applyTheme, theme } from "./colours.js";
import { clock, count, number, setDevices, setNow } from "./format.js";
import { html, render, useEffect, useRef, useState } from "./lib.js";
import { isKiosk, link, useRoute } from "./route.js";
import { clusterNow, store, unwatch, useStore, watch } from "./store.js";
import { useTheme } from "./theme.js";
import { Empty, Loading, Notices, Trouble } from "./ui.js";
import { ClusterView } from "./views/cluster.js";
import { JobView } from "./views/job.js";
import { JobsView } from "./views/jobs.js";
import { SignIn } from "./views/sign_in.js";

// Views that are not looked at first are loaded when someone opens them.
const later = (file, name) => () => import(file).then((module) => module[name]);
const VIEWS = {
  __proto__: null, // the address names a view, and could name what every object has
  cluster: { title: "Cluster", view: ClusterView },
  jobs: { title: "Jobs", view: JobsView },
  job: { title: "Job", view: JobView, hidden: true, under: "jobs" },
  node: {
    title: "Node",
    load: later("./views/node.js", "NodeView"),
    hidden: true,
    under: "cluster",
  },
  sweep: {
    title: "Sweep",
    load: later("./views/compare.js", "SweepView"),
    hidden: true,
    under: "jobs",
  },
  compare: {
    title: "Compare",
    load: later("./views/compare.js", "CompareView"),
    hidden: true,
    under: "jobs",
  },
  audit: {
    title: "Who did what",
    load: later("./views/audit.js", "AuditView"),
    hidden: true,
    under: "tenants",
  },
  submit: { title: "Submit", load: later("./views/submit.js", "SubmitView"), writes: true },
  tenants: { title: "Tenants", load: later("./views/tenants.js", "TenantsView") },
  "what-if": { title: "What if", load: later("./views/what_if.js", "WhatIfView") },
  policies: { title: "Policies", load: later("./views/policies.js", "PoliciesView") },
};

function Frame({ me, leave }) {
  const route = useRoute();
  useStore();
  const chosen = VIEWS[route.view];
  const main = useRef(null),
    first = useRef(true);
  useEffect(() => {
    document.title = `${chosen ? chosen.title : "Not found"}${route.parts[0] ? " " + route.parts[0] : ""} · Weft`;
    if (first.current) {
      first.current = false;
      return;
    }
    main.current?.focus();
    window.scrollTo(0, 0);
  }, [route.view, route.parts.join("/")]);
  const kiosk = isKiosk();
  useEffect(() => document.documentElement.toggleAttribute("data-kiosk", kiosk), [kiosk]);
  const cluster = store.cluster;
  const device = setDevices([...store.nodes.values()].map((node) => node.kind));
  const lost = store.link !== "live";
  return html`
    <a class="skip" href="#main" onClick=${(event) => {
      event.preventDefault();
      main.current.focus();
    }}>Skip to content</a>
    <header class="top">
      <a class="brand" href=${link("cluster")}><img src="/web/icon.svg" alt="" />weft</a>
      <nav class="nav" aria-label="Views">${Object.entries(VIEWS)
        .filter(([, entry]) => !entry.hidden && (!entry.writes || me.role !== "viewer"))
        .map(
          ([name, entry]) => html`
        <a key=${name} href=${link(name)} aria-current=${name === route.view || chosen?.under === name ? "page" : null}>${entry.title}</a>`,
        )}</nav>
      <div class="end">
        ${kiosk && html`<span class="pulse">${clock(clusterNow(), { seconds: false })}</span>`}
        ${
          cluster &&
          html`<span class="pulse" title=${`${device}s in use; current policy`}>
          <span><b>${number(cluster.held)}</b> / ${count(cluster.gpus, device)}<span class="wide">${`\u00a0· ${cluster.policy}`}</span></span></span>`
        }
        <span class="pulse" role="status"><span class="dot ${lost ? (store.link === "lost" ? "off" : "wait") : "live"}" aria-hidden="true"></span>
          <span class=${lost ? "" : "wide"}>${lost ? (store.ready ? "reconnecting" : "connecting") : "live"}</span></span>
        <${ThemeButton} />
        ${me.signed_in && html`<button class="quiet" onClick=${leave} title=${whoIs(me)}>Sign out</button>`}
      </div>
    </header>
    ${store.ready && lost && html`<${Away} />`}
    ${cluster && cluster.speed !== 1 && html`<${Simulated} speed=${cluster.speed} />`}
    ${cluster?.trouble && html`<div class="banner bad" role="alert">${cluster.trouble}</div>`}
    <main id="main" tabindex="-1" ref=${main}>
      ${
        !store.ready
          ? html`<${Loading} what=${store.link === "lost" ? "The service does not answer; trying again" : "Asking the service"} />`
          : chosen
            ? html`<${Chosen} key=${route.view + "/" + route.parts.join("/")} name=${route.view} route=${route} me=${me} />`
            : html`<${Empty} title="No such page">The address names ${route.view}; choose one above.<//>`
      }
    </main>`;
}

const whoIs = (me) =>
  `${me.name || me.role}, ${me.everywhere ? "all tenants" : `tenant ${me.tenant}`}`;

const Away = () =>
  html`<div class="banner" role="status">The service does not answer. What is shown is
    ${" " + count(Math.round((performance.now() - store.heardAt) / 1000), "second")} old; the page comes back by itself.</div>`;

const Simulated = ({ speed }) =>
  html`<div class="banner" role="note">Virtual time: this is a simulated cluster,
    ${speed > 1 ? ` ${number(speed)} times as fast` : ` ${number(1 / speed)} times as slow`} as the clock. All times shown are simulated.</div>`;

function Chosen({ name, route, me }) {
  const entry = VIEWS[name];
  const [view, setView] = useState(() => entry.view || null);
  const [error, setError] = useState(null);
  useEffect(() => {
    if (view) return;
    entry.load().then((loaded) => {
      entry.view = loaded;
      setView(() => loaded);
    }, setError);
  }, []);
  if (error) return html`<${Trouble} error=${error} again=${() => location.reload()} />`;
  return view ? html`<${view} route=${route} me=${me} />` : html`<${Loading} />`;
}

function ThemeButton() {
  useTheme();
  const now = theme(),
    other = now === "dark" ? "light" : "dark";
  return html`<button class="quiet" aria-label=${`Use the ${other} theme`} title=${`Use the ${other} theme`}
    onClick=${() => applyTheme(other)}><span aria-hidden="true">${now === "dark" ? "☀" : "☾"}</span></button>`;
}

function Page() {
  const [me, setMe] = useState(undefined);
  const [error, setError] = useState(null);
  const ask = () =>
    get("/me").then(
      (identity) => {
        setError(null);
        setMe(identity);
        watch();
      },
      (problem) => {
        if (problem.status === 401) setMe(null);
        else setError(problem);
      },
    );
  useEffect(() => {
    onSignedOut(() => {
      unwatch();
      setMe(null);
    });
    watch(); // at once: requests are answered at the same time
    ask();
  }, []);
  useEffect(() => {
    if (!error) return undefined;
    const timer = setTimeout(ask, 2000);
    return () => clearTimeout(timer);
  }, [error]);
  const leave = async () => {
    await remove("/sign-in").catch(() => {});
    unwatch();
    setMe(null);
  };
  return html`${
    error && me === undefined
      ? html`<div class="sign-in"><${Trouble} error=${error} /></div>`
      : me === undefined
        ? html`<${Loading} />`
        : me === null
          ? html`<${SignIn} done=${(identity) => {
              setMe(identity);
              watch();
            }} />`
          : html`<${Frame} me=${me} leave=${leave} />`
  }<${Notices} />`;
}

applyTheme();
setNow(clusterNow);
const root = document.getElementById("page");
root.textContent = "";
render(html`<${Page} />`, root);
