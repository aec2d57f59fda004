// The script of a report: one file without any request. Tables and words are in the page; charts come from its data.
import "./report.css";
import { mount } from "svelte";
import { save } from "../lib/save";
import Place from "./Place.svelte";
import Schedule from "./Schedule.svelte";
import { shown, type Report } from "./shown.svelte";
import { sortable } from "./tables";

const all = <T extends Element>(what: string): T[] => [...document.querySelectorAll<T>(what)];

/** The data is packed: browsers unpack it by themselves, and the file has a third of the size. */
async function unpacked(id: string): Promise<Report> {
  const letters = atob(document.getElementById(id)!.textContent!.trim());
  const bytes = Uint8Array.from(letters, (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json() as Promise<Report>;
}

function policies(): void {
  for (const button of all<HTMLButtonElement>(".chips button[data-index]"))
    button.addEventListener("click", () => {
      const index = Number(button.dataset.index);
      if (!shown.hidden.delete(index)) shown.hidden.add(index);
      button.setAttribute("aria-pressed", String(!shown.hidden.has(index)));
    });
}

/** Selectors of cells, by the charts and by the schedule, say the same. */
function cells(): void {
  const selects = all<HTMLSelectElement>("select.cell");
  for (const select of selects)
    select.addEventListener("change", () => {
      shown.cell = Number(select.value);
      for (const other of selects) other.value = select.value;
    });
}

function tabs(): void {
  const buttons = all<HTMLButtonElement>(".tabs button");
  const choose = (index: number): void => {
    shown.policy = index;
    buttons.forEach((tab, n) => {
      tab.setAttribute("aria-selected", String(n === index));
      tab.tabIndex = n === index ? 0 : -1;
    });
  };
  buttons.forEach((tab, n) => {
    tab.addEventListener("click", () => choose(n));
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      choose((n + step + buttons.length) % buttons.length);
      buttons[shown.policy]!.focus();
    });
  });
}

async function start(): Promise<void> {
  shown.report = await unpacked("report-data");
  for (const target of all<HTMLElement>(".plot")) {
    const { slug, label } = target.dataset as { slug: string; label: string };
    if (slug === "gantt") mount(Schedule, { target, props: { label } });
    else mount(Place, { target, props: { slug, label } });
  }
  policies();
  cells();
  tabs();
  all<HTMLTableElement>("table.sortable").forEach(sortable);
  document.getElementById("data")?.addEventListener("click", () => save("figures.json", "application/json", JSON.stringify(shown.report)));
  document.documentElement.dataset.drawn = "yes";
}

void start();
