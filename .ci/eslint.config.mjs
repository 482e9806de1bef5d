// What is a mistake in the page's scripts; how they look is prettier's.
const browser = Object.fromEntries(
  `AbortController Blob Error EventSource FormData HashChangeEvent Intl ReadableStream ResizeObserver TextDecoder
   URL URLSearchParams WebSocket clearInterval clearTimeout console document fetch getComputedStyle history
   localStorage location matchMedia navigator performance requestAnimationFrame cancelAnimationFrame setInterval
   setTimeout window structuredClone DecompressionStream Response TextDecoderStream innerWidth Plotly Headers DOMException IntersectionObserver queueMicrotask`
    .split(/\s+/)
    .map((name) => [name, "readonly"]),
);

export default [
  {
    languageOptions: { ecmaVersion: 2024, sourceType: "module", globals: browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "no-undef": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      eqeqeq: ["error", "always", { null: "ignore" }],
      "no-const-assign": "error",
      "no-dupe-keys": "error",
      "no-dupe-args": "error",
      "no-unreachable": "error",
      "no-cond-assign": "error",
      "no-self-compare": "error",
      "no-self-assign": "error",
      "no-shadow-restricted-names": "error",
      "no-unsafe-finally": "error",
      "no-unsafe-optional-chaining": "error",
      "no-use-before-define": ["error", { functions: false, variables: false }],
      "use-isnan": "error",
      "valid-typeof": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-async-promise-executor": "error",
      "array-callback-return": "error",
      "no-fallthrough": "error",
      "no-empty": ["error", { allowEmptyCatch: false }],
    },
  },
];
