// How the site's search orders what it finds: pages and headings named like the question first, proofs last.
var Scorer = {
  last: ["adding-a-policy", "design", "guarantees-counts", "guarantees-funnel", "proofs", "releasing", "reproduction"],
  score: ([page, , anchor, , score, , kind]) =>
    score + (kind === "title" ? (anchor ? 10 : 15) : 0) - (Scorer.last.includes(page) ? 20 : 0),
  // The rest is as Sphinx has it.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
