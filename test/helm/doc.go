// Package helm installs, upgrades and uninstalls refit's chart with Helm on a real API server.
//
// testdata/previous-chart.tgz is the chart of the version before this one: charts/refit of that
// commit, packed by tar. testdata/previous-objects.yaml are objects that people wrote for it: its
// config/samples. A release replaces both.
package helm
