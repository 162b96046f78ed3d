// Elements are made here and text goes in as text: nothing that a model wrote is ever markup.

export const byId = (id) => document.getElementById(id);

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") element.className = value;
    else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

// Shows text with its fenced code blocks set apart. Called for every piece of a stream: what has not
// changed since the last call stays as it is, so that a selection survives.
export function showText(element, text) {
  const parts = text.split(/^```.*\n?/m);
  parts.forEach((part, index) => {
    const tag = index % 2 === 1 ? "PRE" : "DIV";
    let node = element.children[index];
    if (node?.tagName !== tag) {
      const made = make(tag, { class: "text" });
      if (node) node.replaceWith(made);
      else element.append(made);
      node = made;
    }
    if (node.textContent !== part) node.textContent = part;
  });
  while (element.children.length > parts.length) element.lastElementChild.remove();
}
