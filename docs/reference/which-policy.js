const chosen = new Set(),
  rows = [...document.querySelectorAll("tbody tr")];
function filter() {
  for (const row of rows) {
    row.hidden = ![...chosen].every((tag) => row.dataset.tags.includes(` ${tag} `));
  }
  const left = rows.filter((row) => !row.hidden).length;
  document.getElementById("count").textContent = `${left} of ${rows.length}`;
}
for (const button of document.querySelectorAll("#tags button")) {
  button.addEventListener("click", () => {
    const tag = button.dataset.tag;
    if (!chosen.delete(tag)) chosen.add(tag);
    button.setAttribute("aria-pressed", String(chosen.has(tag)));
    filter();
  });
}
filter();
