// What the words of the page mean: a line each, and the page of the documentation that says more.
// The page itself loads nothing from elsewhere: a link is followed only by whoever clicks it.

import { element } from "./elements.js";

export const SITE = "https://filet-dp.github.io/filet/";

export const TOPICS = {
  size: {
    title: "Is the number of records public?",
    page: "is_n_public.html",
    words: {
      public: "Anybody may know it: epsilon is for this dataset size alone.",
      "at-most": "The dataset size is the largest that there may be: epsilon is for every number up to it. For policy truncate.",
      secret: "The dataset size is a plan, made without looking at the data: epsilon is for every number. For policy reject.",
    },
  },
  adjacency: {
    title: "Which data sets are neighbours",
    page: "accounting.html#adjacency-and-what-dataset_size-means",
    words: {
      "zero-out": "One example's contribution becomes zero, and all else stays. Without a cap it costs what add-remove costs.",
      "add-remove": "One example is added or removed: what papers on private training usually report.",
      "replace-one": "One example becomes any other. The strongest of the three, with a larger epsilon.",
    },
  },
  overflow: {
    title: "What happens to a batch above the cap",
    page: "policies.html",
    words: {
      truncate: "The batch is cut: as many of its examples as there are rows stay, chosen at random.",
      reject: "The batch is drawn again until it fits. Epsilon stays near that of plain Poisson sampling.",
    },
  },
  analyses: {
    title: "Proofs of the same run's epsilon",
    page: "accounting.html#analyses",
    words: {
      refined: "The tightest proof, filet's default: the smallest epsilon that is known to hold for truncated batches.",
      swap: "A simpler proof for truncated batches, to compare: never below refined.",
      note: "The analysis of Ganesh (2025), to compare.",
      union: "Plain Poisson sampling, with the chance of any overflow added to delta: useless once overflows are common.",
      attack: "Not a proof of safety but of loss: an explicit attack shows that no analysis can give less.",
      "no cap": "Plain Poisson sampling, whose batches have any size.",
    },
  },
};
const MEANING = Object.assign({}, ...Object.values(TOPICS).map((topic) => topic.words));

/** What a word means, for a tooltip; undefined where there is nothing to say. */
export const meaning = (word) => MEANING[word];

/** A link to a page of the documentation. */
export const link = (page, words) => element("a", { href: `${SITE}${page}`, target: "_blank", rel: "noopener noreferrer" }, words);

const box = element("div", { id: "help", popover: "auto", role: "note", "aria-label": "Help" });

/** A button that explains a topic beside itself. Escape, or a click elsewhere, closes it. */
export function help(topic) {
  const { title, page, words } = TOPICS[topic];
  const button = element("button", { type: "button", class: "help", "aria-label": `Help: ${title}`, title }, "?");
  button.addEventListener("click", () => {
    if (!box.isConnected) document.querySelector("main").append(box);
    const lines = Object.entries(words).flatMap(([word, text]) => [element("dt", {}, word), element("dd", {}, text)]);
    box.replaceChildren(element("h3", {}, title), element("dl", {}, ...lines), link(page, "Read more in the documentation"));
    box.showPopover();
    place(button);
  });
  return button;
}

/** Below the button if there is room, else above it; never beyond the window. */
function place(button) {
  const [at, size] = [button.getBoundingClientRect(), box.getBoundingClientRect()];
  const below = at.bottom + 6 + size.height <= window.innerHeight;
  box.style.left = `${Math.max(8, Math.min(at.left - 12, window.innerWidth - size.width - 8))}px`;
  box.style.top = `${Math.max(8, below ? at.bottom + 6 : at.top - size.height - 6)}px`;
}
