// Package config embeds refit's manifests, so that the CLI can apply them without
// other files. They are kinds (crd/, generated from api/v1alpha1), namespaces,
// access rules with their reasons, admission policies, and the controller's
// Deployment.
//
// Promise: Manifests gives every object in the order in which it must be
// applied; applying twice is the same as once.
//
// Input: the reference of refit's image. Output: unstructured objects. Callers:
// the CLI's install and uninstall, the lab, the tests against a real API server.
package config
