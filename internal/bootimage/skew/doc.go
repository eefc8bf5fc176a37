// Package skew decides whether the boot image of a machine source is new enough
// for a target.
//
// Promise: pure, and closed by default. A version that cannot be read, a rule
// that cannot be applied, an image that nobody recognises is a violation, and
// says so; only a waiver with a reason and an end that has not come, or a source
// for which the administrator took the risk (None), lets it through, and then it
// is still said. The target decides, not what runs now.
//
// Rules are data: they come with a stream (the release brings its own limits) or
// with a policy, and all that match the target must hold.
//
// Inputs: Source, Target, rules, waivers, now. Outputs: findings, the oldest
// image. Callers: internal/controller/bootimages, `refit bootimage check`.
//
//	fs := skew.Judge(skew.Input{Source: s, Target: skew.Target{Kubernetes: "1.37.0"}, Rules: rules, Now: now})
//	skew.Blocks(fs)
package skew
