// The API, read from its schema: no build step and nothing from elsewhere.
const make = (tag, text = "", name = "") =>
  Object.assign(document.createElement(tag), { textContent: text, className: name });
const named = (ref) => ref.split("/").pop();
function kind(schema) {
  if (!schema) return "";
  if (schema.$ref) return named(schema.$ref);
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  if ("const" in schema) return JSON.stringify(schema.const);
  return schema.type === "array" ? `list of ${kind(schema.items)}` : schema.type || "any";
}
function table(headings, rows) {
  const made = make("table"),
    head = made.appendChild(make("tr"));
  headings.forEach((heading) => head.append(make("th", heading)));
  for (const row of rows) {
    const line = made.appendChild(make("tr"));
    row.forEach((cell, i) => {
      const at = line.appendChild(make("td"));
      at.append(i ? cell : make("code", cell));
    });
  }
  return made;
}
function fields(schema, all) {
  const whole = schema.$ref ? all[named(schema.$ref)] : schema;
  const needed = new Set(whole.required || []);
  return Object.entries(whole.properties || {}).map(([name, field]) => [
    name,
    kind(field),
    needed.has(name)
      ? "required"
      : "default" in field
        ? `default ${JSON.stringify(field.default)}`
        : "",
  ]);
}
function route(path, method, operation, all) {
  const says = (operation.description || operation.summary || "").split("\n\n");
  const made = make("details"),
    line = made.appendChild(make("summary"));
  line.append(
    make("span", method.toUpperCase(), "method"),
    make("code", path),
    make("span", says[0], "say"),
  );
  says.slice(1).forEach((more) => made.append(make("p", more)));
  const given = (operation.parameters || []).filter((p) => p.in !== "header");
  if (given.length)
    made.append(
      table(
        ["parameter", "in", "type", ""],
        given.map((p) => [p.name, p.in, kind(p.schema), p.required ? "required" : ""]),
      ),
    );
  const body = operation.requestBody?.content?.["application/json"]?.schema;
  if (body) made.append(table(["field of the body", "type", ""], fields(body, all)));
  const send = body ? " -H 'content-type: application/json' -d @body.json" : "";
  made.append(make("pre", `curl -X ${method.toUpperCase()}${send} ${location.origin}${path}`));
  return made;
}
fetch("openapi.json")
  .then((answer) => answer.json())
  .then((api) => {
    document.getElementById("version").textContent = `Version ${api.info.version}.`;
    const main = document.getElementById("routes"),
      groups = {};
    for (const [path, methods] of Object.entries(api.paths))
      for (const [method, operation] of Object.entries(methods))
        (groups[path.replace("/api/v1", "").split("/")[1] || "root"] ??= []).push(
          route(path, method, operation, api.components?.schemas || {}),
        );
    main.replaceChildren(
      ...Object.entries(groups)
        .sort()
        .flatMap(([name, routes]) => [make("h2", name), ...routes]),
    );
  })
  .catch((error) => {
    document.getElementById("routes").textContent = `openapi.json could not be read: ${error}`;
  });
