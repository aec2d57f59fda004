// What came of something that was asked for, told once; screen readers hear it.
import { said } from "./api";

class Toasts {
  shown = $state<{ id: number; text: string; bad: boolean }[]>([]);
  private next = 0;
  tell(text: string, bad = false): void {
    const id = this.next++;
    this.shown = [...this.shown.slice(-2), { id, text, bad }];
    setTimeout(() => this.drop(id), bad ? 12_000 : 5_000);
  }
  drop(id: number): void {
    this.shown = this.shown.filter((one) => one.id !== id);
  }
  /** Do something and say how it went; whether it went well. */
  async did(work: Promise<unknown>, text: string): Promise<boolean> {
    try {
      await work;
      this.tell(text);
      return true;
    } catch (error) {
      this.tell(said(error), true);
      return false;
    }
  }
}

export const toasts = new Toasts();
