// How wide there is room, and how wide it is now.
import { useLayoutEffect, useRef, useState } from "./lib.js";

export function useWidth() {
  const ref = useRef(null);
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const watcher = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    watcher.observe(ref.current);
    setWidth(Math.floor(ref.current.clientWidth));
    return () => watcher.disconnect();
  }, []);
  return [ref, width];
}
