// Package lint judges image references and pull policies: sixteen rules, T01 to
// T16, about tags that move under what a node needs, policies that ask a
// registry which is not there, digests that nobody keeps.
//
// Promise: pure. Every finding has a rule, a severity (error, warning, info), a
// place (file and line of a manifest, or the object), and a fix. A rule that
// needs a fact which nobody has says nothing; how certain a tag is to move is
// taken from a declared scheme, and where none is declared the severity says so.
// A rule is switched off by name, with a reason, in a configuration file or in
// an annotation of the object; what was switched off is counted, not hidden.
//
// Inputs: manifests as text (Parse) or objects of a cluster, Site, Config.
// Outputs: Report. Callers: `refit tags lint`, `refit bundle create`, the gate
// (internal/controller/gatefacts).
//
// Files: rules.go the list, rules_*.go the questions (rules_resolve.go has the known
// products that resolve tags), parse.go and yaml.go
// manifests with their lines, config.go what is switched off, place.go where.
package lint
