// Package lint checks image references and pull policies with sixteen rules, T01 to T16. They
// find moving tags in critical pods, policies that need an unreachable registry, and digests
// that are not pinned.
//
// Promise: pure. Every finding has a rule, a severity (error, warning, info), a
// place (file and line of a manifest, or the object), and a fix. A rule without
// the facts that it needs reports nothing. A declared scheme decides whether a tag
// moves; without one the severity is lower.
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
