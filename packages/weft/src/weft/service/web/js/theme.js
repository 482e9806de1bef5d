// Light or dark, for components that draw by themselves.
import { onTheme, themeNumber } from "./colours.js";
import { useEffect, useState } from "./lib.js";

/** A number that is another one after each change of the theme; the component is drawn again then. */
export function useTheme() {
  const [number, setNumber] = useState(themeNumber());
  useEffect(() => {
    const listener = () => setNumber(themeNumber());
    const end = onTheme(listener);
    listener(); // it may have changed before this was heard
    return end;
  }, []);
  return number;
}
