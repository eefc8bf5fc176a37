// Package buildevents says what becomes of builds of OS images: events for people who look at
// an OSBuild or an OSImage, numbers for Prometheus.
//
// Promise: it is told after what happened is written down, so nothing is told that did not
// happen; a crash in between loses the word and never the fact. Labels are bounded:
// OSImages, builders, phases. Nothing of a Containerfile or a log is in a label.
//
// Inputs: OSBuilds before and after a step. Outputs: events, metrics. Callers:
// internal/controller/osimages and its building. A nil Teller says nothing.
package buildevents
