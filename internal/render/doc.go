// Package render turns views and plans into text, JSON and YAML. It is the
// only code that formats for people.
//
// Its inputs come from nodes, bundles and registries too, so all output goes through
// package clean.
//
// Promise: standard output carries only the answer; JSON has a stable schema
// (apiVersion and kind in every document); sizes in JSON are bytes, times RFC
// 3339. Text is not an API.
//
// Inputs: explain.View, model.Plan and estimates. Callers: the command line.
package render
