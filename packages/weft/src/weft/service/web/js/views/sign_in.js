// Signing in: the token goes to the service once, and comes back as a cookie that no script can read.
import { post } from "../api.js";
import { html, useState } from "../lib.js";
import { Field, Trouble } from "../ui.js";

export function SignIn({ done }) {
  const [secret, setSecret] = useState("");
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const send = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      done(await post("/sign-in", {}, { headers: { authorization: `Bearer ${secret.trim()}` } }));
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<main class="sign-in"><form onSubmit=${send}>
    <div><span class="brand"><img src="/web/icon.svg" alt="" />weft</span></div>
    <div><h1>Sign in</h1><p class="dim">Enter a token of this service. An admin creates one with <code>weft token create</code>.</p></div>
    <${Field} label="Token"><input type="password" name="token" autocomplete="current-password" required autofocus
    value=${secret} onInput=${(event) => setSecret(event.target.value)} /><//>
    <${Trouble} error=${error} />
    <button class="main" disabled=${busy || !secret.trim()}>${busy ? "Signing in …" : "Sign in"}</button>
  </form></main>`;
}
