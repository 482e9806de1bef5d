// The one place that names the view library.
export {
  html,
  render,
  useState,
  useEffect,
  useLayoutEffect,
  useRef,
  useMemo,
  useCallback,
  Component,
} from "/web/vendor/htm-preact-standalone.module.js";
