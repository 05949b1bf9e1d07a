// Controls above a drawing.
//
// A control: {key, label, kind, options(), then()}. kind "radio" or "select": options are
// [value, text, isOff]; kind "range": options are [low, high], first() is where it begins and
// text(value) what it says. App.state[key] holds the value; then() is called after a change.

function syncControls(host, controls, redraw) {
  for (const control of controls) {
    const options = control.options();
    const print = JSON.stringify(options);
    const id = `control-${control.key}`;
    const old = host.querySelector(`[data-control="${id}"]`);
    if (old && old.dataset.print === print) continue;
    keepChoice(control, options);
    const changed = (value) => {
      App.state[control.key] = value;
      if (control.then) control.then();
      syncControls(host, controls, redraw);
      redraw();
    };
    const made = { radio, select, range }[control.kind](control, options, changed, id);
    made.dataset.control = id;
    made.dataset.print = print;
    made.hidden = control.kind === "range" ? options[1] <= options[0] : options.length < 2;
    if (old) old.replaceWith(made);
    else host.append(made);
  }
}

/** Keep the chosen value if it can still be chosen, else take the first that can. */
function keepChoice(control, options) {
  const value = App.state[control.key];
  if (control.kind === "range") {
    const first = control.first ? control.first() : options[0];
    App.state[control.key] = within(value === undefined ? first : value, ...options);
    return;
  }
  const possible = options.filter(([, , isOff]) => !isOff);
  if (possible.some(([other]) => other === value)) return;
  const [first] = possible[0] || options[0] || [null];
  App.state[control.key] = first;
}

function radio(control, options, changed, id) {
  const button = ([value, text, isOff]) => {
    const isChosen = App.state[control.key] === value;
    const onchange = () => changed(value);
    const looks = { type: "radio", name: id, value, disabled: isOff, checked: isChosen };
    return el("label", {}, el("input", { ...looks, onchange }), text);
  };
  return el("fieldset", {}, el("legend", {}, control.label), options.map(button));
}

function select(control, options, changed) {
  const entry = ([value, text]) => {
    return el("option", { selected: App.state[control.key] === value }, text);
  };
  const onchange = () => changed(options[box.selectedIndex][0]);
  const box = el("select", { onchange }, options.map(entry));
  return el("label", {}, el("span", { class: "soft" }, control.label), box);
}

function range(control, [min, max], changed) {
  const text = control.text || String;
  const value = App.state[control.key];
  const output = el("output", {}, text(value));
  const oninput = () => {
    output.textContent = text(Number(slider.value));
    changed(Number(slider.value));
  };
  const slider = el("input", { type: "range", min, max, step: 1, value, oninput });
  return el("label", {}, el("span", { class: "soft" }, control.label), slider, output);
}

// -------------------------------- one run: method and seed

function runControls(prefix, then) {
  const methods = () => App.data.methods.map((method, number) => [number, method.label]);
  const seeds = () => chosenMethod(prefix).runs.map((run) => [run.seed, String(run.seed)]);
  return [
    { key: `${prefix}-method`, label: "method", kind: "select", then, options: methods },
    { key: `${prefix}-seed`, label: "seed", kind: "select", then, options: seeds },
  ];
}

function chosenMethod(prefix) {
  return App.data.methods[App.state[`${prefix}-method`]] || App.data.methods[0];
}

function chosenRun(prefix) {
  const { runs } = chosenMethod(prefix);
  return runs.find((run) => run.seed === App.state[`${prefix}-seed`]) || runs[0];
}
