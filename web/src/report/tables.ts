// Tables that are sorted by a click on their headings.
export function sortable(tableElement: HTMLTableElement): void {
  const heads = [...tableElement.tHead!.rows[0]!.cells];
  heads.forEach((head, column) =>
    head.querySelector("button")?.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      sortBy(tableElement.tBodies[0]!, column, down);
    }),
  );
}

function sortBy(body: HTMLTableSectionElement, column: number, down: boolean): void {
  const value = (row: HTMLTableRowElement): string => row.cells[column]!.dataset.value ?? "";
  const order = (a: string, b: string): number => (Number.isNaN(Number(a)) || Number.isNaN(Number(b)) ? a.localeCompare(b) : Number(a) - Number(b));
  const rows = [...body.rows].sort((a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x === "" || y === "") return Number(x === "") - Number(y === "");
    return down ? -order(x, y) : order(x, y);
  });
  body.append(...rows);
}
