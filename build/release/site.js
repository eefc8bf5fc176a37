// The only script of the pages: the menu on a small screen, and the search. The index of the search
// is a script, which a page from a directory may load, other than JSON. Only search.html loads it.
(function () {
  'use strict';
  for (const button of document.querySelectorAll('[data-toggle="wy-nav-top"]')) {
    button.addEventListener('click', () => {
      for (const part of document.querySelectorAll('[data-toggle="wy-nav-shift"]')) part.classList.toggle('shift');
    });
  }

  const input = document.getElementById('mkdocs-search-query');
  const results = document.getElementById('mkdocs-search-results');
  if (!input || !results) return;

  const excerpt = (text, words) => {
    const at = words.map((w) => text.toLowerCase().indexOf(w.toLowerCase())).find((i) => i >= 0) || 0;
    const from = Math.max(0, at - 80);
    return (from > 0 ? '… ' : '') + text.slice(from, from + 260) + (from + 260 < text.length ? ' …' : '');
  };

  const show = (page, words) => {
    const link = document.createElement('a');
    link.href = page.location;
    link.textContent = page.title;
    const title = document.createElement('h3');
    title.append(link);
    const text = document.createElement('p');
    text.textContent = excerpt(page.text, words);
    results.append(title, text);
  };

  const start = () => {
    const pages = new Map(window.refitPages.map((p) => [p.location, p]));
    const index = lunr(function () {
      this.ref('location');
      this.field('title', { boost: 10 });
      this.field('text');
      pages.forEach((p) => this.add(p));
    });
    const search = () => {
      const words = input.value.split(/[^\p{L}\p{N}_]+/u).filter((w) => w.length > 1);
      results.replaceChildren();
      if (words.length === 0) return;
      const found = index.query((q) => {
        for (const w of words) {
          q.term(lunr.tokenizer(w), { boost: 10 });
          q.term(lunr.tokenizer(w), { wildcard: lunr.Query.wildcard.TRAILING });
        }
      });
      for (const f of found.slice(0, 30)) show(pages.get(f.ref), words);
      if (found.length === 0) results.textContent = results.dataset.noResultsText;
    };
    input.value = new URLSearchParams(location.search).get('q') || '';
    input.addEventListener('input', search);
    search();
  };

  const load = (sources) => {
    if (sources.length === 0) return start();
    const script = document.createElement('script');
    script.src = sources[0];
    script.onload = () => load(sources.slice(1));
    document.head.append(script);
  };
  load(['search/lunr.js', 'search/pages.js']);
})();
