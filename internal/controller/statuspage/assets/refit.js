// The page works without this script. With it the page follows the cluster: after an event it
// fetches itself again and replaces its main part.
"use strict";
(function () {
  var root = document.documentElement, live = document.getElementById("live"), busy = false, again = false;
  function say(text) { if (live) { live.textContent = text; } }
  function openSections() {
    return Array.prototype.map.call(document.querySelectorAll("details[id]"), function (d) { return [d.id, d.open]; });
  }
  function replace(html) {
    var fresh = new DOMParser().parseFromString(html, "text/html"), next = fresh.querySelector("main"), now = document.querySelector("main");
    if (!next || !now) { return; }
    var states = openSections(), focus = document.activeElement && document.activeElement.id;
    document.title = fresh.title;
    now.replaceWith(next);
    states.forEach(function (s) { var d = document.getElementById(s[0]); if (d) { d.open = s[1]; } });
    var before = focus && document.getElementById(focus);
    if (before) { before.focus({ preventScroll: true }); }
    var at = fresh.getElementById("at"), shown = document.getElementById("at");
    if (at && shown) { shown.replaceWith(at); }
  }
  function refresh() {
    if (busy) { again = true; return; }
    busy = true;
    fetch(location.pathname + location.search, { credentials: "same-origin", cache: "no-store" })
      .then(function (r) { if (!r.ok) { throw new Error(String(r.status)); } return r.text(); })
      .then(function (html) { replace(html); say("live"); })
      .catch(function () { say("not connected: this is the last known state"); })
      .then(function () { busy = false; if (again) { again = false; setTimeout(refresh, 1000); } });
  }
  var path = root.getAttribute("data-events");
  if (!path || !window.EventSource || !window.fetch) { return; }
  var source = new EventSource(path), first = true;
  source.addEventListener("status", function () { if (first) { first = false; say("live"); return; } refresh(); });
  source.onerror = function () { say("not connected: this is the last known state"); };
  source.onopen = function () { say("live"); };
  setInterval(refresh, 30000);
})();
