// Package imagerefs finds the image references in Kubernetes objects.
//
// Promise: pure. Every reference has its place (file, line, object, field path) and the rule
// that found it. A rule is a field that Kubernetes, or the documentation of a custom resource,
// defines as an image. Or it is an argument or variable whose name says that it is one, with a
// whole reference. Text that only resembles a reference is a candidate (Ref.Maybe), never more.
// An image that an operator has in its own program is in no object, so it is not found. The
// status of objects is not read.
//
// Input: YAML or JSON with any number of documents and lists, of at most MaxSize bytes.
// Larger or more deeply nested input, and aliases that multiply, end in an error.
// Output: references in the order of the file. Callers: `refit bundle images`,
// `refit bundle create`.
//
// Files: find.go the walk, rules.go what every pod has, fields.go the table of custom
// resources, arguments.go command lines and environments, maybe.go candidates, parse.go YAML.
package imagerefs
