"use strict";
// Everything can be read without this: it adds copy buttons, lights up a source line in all graphs, and makes pictures movable.
for (const box of document.querySelectorAll("[data-copy]")) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = box.dataset.copy;
  button.addEventListener("click", async () => {
    const text = [...box.querySelectorAll("[data-copied]")].map((one) => one.textContent).join("\n") || box.querySelector("pre").textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      const range = document.createRange();
      range.selectNodeContents(box.querySelector("pre"));
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => (button.textContent = box.dataset.copy), 2500);
  });
  box.append(button);
}
let lit = [];
for (const row of document.querySelectorAll("tr[data-at]")) {
  row.addEventListener("mouseenter", () => {
    for (const one of lit) one.classList.remove("lit");
    lit = [...document.querySelectorAll(`span[data-at~="${row.dataset.at}"]`)];
    for (const one of lit) one.classList.add("lit");
  });
}
const open = () => {
  const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  for (let one = target; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
  if (target) target.scrollIntoView();
};
addEventListener("hashchange", open);
open();
// For browsers whose style sheet cannot: on paper everything is open but graphs, guard trees and the text to paste, unless the reader opened them.
let opened = [];
addEventListener("beforeprint", () => {
  opened = [...document.querySelectorAll("details:not([open]):not(.long)")];
  for (const one of opened) one.open = true;
});
addEventListener("afterprint", () => {
  for (const one of opened) one.open = false;
});
for (const holder of document.querySelectorAll("details.graph")) {
  holder.addEventListener("toggle", () => {
    const image = holder.querySelector("figure img");
    if (!holder.open || !image || image.dataset.moves) return;
    image.dataset.moves = "yes";
    const moved = Panzoom(image, { maxScale: 6, minScale: 0.2, cursor: "grab" });
    const bar = document.createElement("p");
    for (const [name, does] of [["Zoom in", moved.zoomIn], ["Zoom out", moved.zoomOut], ["Reset", moved.reset]]) {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", () => does());
      bar.append(button, " ");
    }
    image.closest("figure").before(bar);
    image.closest("figure").addEventListener("wheel", (event) => event.ctrlKey && moved.zoomWithWheel(event), { passive: false });
  });
}
