"use strict";
// Shows one question and one point of the embedded data. Texts enter the page as text nodes only.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const at = (id) => document.getElementById(id);
  const questions = at("question"), points = at("point");

  const make = (tag, text = "", className = "") => {
    const element = document.createElement(tag);
    element.textContent = text;
    if (className) element.className = className;
    return element;
  };
  const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1));
  const units = (indices) => indices.map((index) => `[${index + 1}]`).join(" ") || "none";
  const budget = (value) =>
    value === null ? "no budget" : Number.isInteger(value) ? `${value} tokens` : `${+(100 * value).toFixed(4)} %`;
  const question = () => data.questions[questions.selectedIndex];
  const row = () => question().rows[points.value];

  // Which units lead to each sentence, and whether by a source they declare: {sid: [{unit, declared}]}.
  const findSources = (indices) => {
    const found = {};
    for (const unit of indices) {
      for (const sid of row().resolved[unit] || []) {
        const declared = question().units[row().units[unit]].sources !== null;
        (found[sid] = found[sid] || []).push({ unit, declared });
      }
    }
    return found;
  };
  const citedUnits = () => [...new Set(row().statements.flatMap((statement) => statement.cited))].sort((a, b) => a - b);

  const fillPoints = () => {
    const before = points.value;
    points.replaceChildren();
    const groups = {};
    for (const [hash, point] of Object.entries(data.points)) {
      if (!(hash in question().rows)) continue;
      if (!(point.family in groups)) {
        groups[point.family] = document.createElement("optgroup");
        groups[point.family].label = point.family;
        points.append(groups[point.family]);
      }
      const option = make("option", `${point.title}, ${budget(point.budget)}`);
      option.value = hash;
      groups[point.family].append(option);
    }
    if ([...points.options].some((option) => option.value === before)) points.value = before;
  };

  const explain = (index) => {
    const box = at("explanation");
    box.replaceChildren();
    document.querySelectorAll(".linked, .chosen").forEach((one) => one.classList.remove("linked", "chosen"));
    if (index === null) {
      box.append(make("p", "Hover over a statement, tap it or reach it with Tab: what it cites and what each check says."));
      return;
    }
    const statement = row().statements[index], verdict = data.verdicts[statement.verdict];
    const support = (view) =>
      `${statement[view].recalled ? "entailed" : "not entailed"}; precise citations: ${units(statement[view].precise)}`;
    box.append(make("p", `${verdict.sign} ${verdict.words}`, "sign"));
    box.append(make("p", statement.text));
    const invalid = statement.invalid.length ? `; invalid: ${statement.invalid.join(" ")}` : "";
    const list = make("dl");
    const add = (term, words) => list.append(make("dt", term), make("dd", words));
    add("cites units", units(statement.cited) + invalid);
    add("by the units' text", support("generated"));
    add("by the source", support("grounded"));
    for (const [mode, supported] of Object.entries(statement.verified)) {
      const refused = !supported && mode === "span" && statement.structural;
      add(`${mode} check`, supported ? "supported" : refused ? "refused: there is no declared source" : "unsupported");
    }
    const sources = findSources(statement.cited);
    add("source sentences", Object.keys(sources).join(", ") || "none");
    box.append(list);
    document.querySelectorAll(`[data-statement="${index}"]`).forEach((one) => one.classList.add("chosen"));
    for (const element of document.querySelectorAll("#documents [data-sid]")) {
      if (element.dataset.sid in sources) element.classList.add("linked");
    }
    for (const unit of statement.cited) at("units").children[unit]?.classList.add("linked");
  };

  const showAnswer = () => {
    const answer = at("answer");
    answer.replaceChildren();
    for (const [text, index] of row().answer) {
      if (index === null) {
        answer.append(text);
        continue;
      }
      const statement = row().statements[index], verdict = data.verdicts[statement.verdict];
      const element = make("span", "", `statement ${statement.verdict}`);
      const sign = make("span", `${verdict.sign} `, "sign");
      sign.setAttribute("aria-hidden", "true");
      element.append(sign, text);
      // What was cited afterwards may stand nowhere in the text.
      const unwritten = statement.cited.filter((unit) => !text.includes(`[${unit + 1}]`));
      if (row().citer === "posthoc" && unwritten.length) element.append(make("sup", ` ${units(unwritten)}`));
      element.setAttribute("role", "button");
      element.setAttribute("tabindex", "0");
      element.setAttribute("aria-label", `${text} (${verdict.words})`);
      element.dataset.statement = index;
      for (const event of ["mouseenter", "focus", "click"]) element.addEventListener(event, () => explain(index));
      element.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        explain(index);
      });
      answer.append(element);
    }
    if (!row().answer.length) answer.append("(empty)");
    if (row().finish === "length") answer.append(make("small", " (cut at its limit)"));
  };

  const showUnits = () => {
    at("units").replaceChildren();
    const cited = new Set(citedUnits());
    row().units.forEach((place, unit) => {
      const { text, sources } = question().units[place];
      const found = (row().resolved[unit] || []).join(", ");
      const told = sources === null ? (found ? `recovered: ${found}` : "no source declared or recovered") : `declares: ${found || "nothing"}`;
      const item = make("li", `[${unit + 1}] ${text}`);
      item.append(make("small", `${told}${cited.has(unit) ? "; cited" : ""}`));
      at("units").append(item);
    });
    if (!row().units.length) at("units").append(make("li", "None."));
  };

  const showDocuments = () => {
    const sources = row().statements ? findSources(citedUnits()) : {};
    at("documents").replaceChildren();
    question().documents.forEach((document_, n) => {
      const box = make("details"), text = make("p");
      box.append(make("summary", `${n + 1}. ${document_.title || "untitled"}`), text);
      for (const [piece, sid] of document_.pieces) {
        if (sid === null || !(sid in sources)) {
          text.append(piece);
          continue;
        }
        const declared = sources[sid].some((source) => source.declared);
        const sentence = make("span", piece, `sentence ${declared ? "declared" : "recovered"}`);
        sentence.dataset.sid = sid;
        sentence.append(make("sup", ` ${units(sources[sid].map((source) => source.unit))}${declared ? "" : " recovered"}`));
        text.append(sentence);
        box.open = true;
      }
      at("documents").append(box);
    });
  };

  const showNumbers = () => {
    const add = (term, words) => at("numbers").append(make("dt", term), make("dd", words));
    at("numbers").replaceChildren();
    for (const [view, of] of Object.entries(row().views)) {
      add(view, `precision ${percent(of.precision)}, recall ${percent(of.recall)}`);
    }
    for (const [mode, of] of Object.entries(row().verification)) {
      add(`${mode} check`, `${of.unsupported} of ${of.claims} claims unsupported, ${of.structural} structural; ${of.verifier_tokens} tokens`);
    }
    for (const [name, value] of Object.entries(row().quality || {})) {
      if (value === null || typeof value === "number") add(name.replaceAll("_", " "), percent(value));
    }
  };

  const show = () => {
    const failed = !row() || !row().statements;
    at("asked").textContent = question().question;
    at("golds").textContent = question().golds.length ? `Gold: ${question().golds.join("; ")}` : "No gold answer.";
    at("evidence").textContent = question().evidence.length ? `Evidence: ${question().evidence.join("; ")}` : "";
    at("excluded").hidden = !question().excluded.length;
    at("excluded").textContent = `Excluded from every number. ${question().excluded.join("; ")}`;
    at("explanation").replaceChildren();
    if (failed) {
      at("answer").textContent = row() ? row().status : "No row.";
      at("units").replaceChildren();
      at("numbers").replaceChildren();
      at("documents").replaceChildren();
      if (row()) showDocuments();
      return;
    }
    showAnswer();
    showUnits();
    showDocuments();
    showNumbers();
    explain(null);
  };

  const step = (by) => {
    const n = data.questions.length;
    questions.selectedIndex = (questions.selectedIndex + by + n) % n;
    fillPoints();
    show();
  };

  if (!data.questions.length) {
    at("inspected").replaceChildren(make("p", "No question was kept for inspection."));
    return;
  }
  data.questions.forEach((one, n) => questions.append(make("option", `${n + 1}. ${one.question} (${one.dataset}, ${one.id})`)));
  questions.addEventListener("change", () => step(0));
  points.addEventListener("change", show);
  at("previous").addEventListener("click", () => step(-1));
  at("next").addEventListener("click", () => step(1));
  at("controls").hidden = at("keys").hidden = false;
  step(0);
})();
