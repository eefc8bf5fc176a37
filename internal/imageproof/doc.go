// Package imageproof verifies signatures of container images against a policy, and reads and
// writes the archive of signatures, SBOMs and provenance that a bundle carries.
//
// Promise: pure and small. It imports the standard library only, opens no file and no
// connection, and takes the time as an argument, so that commands and agents can use it. A
// proof counts only if its cryptographic signature is valid under a key or root of the policy
// and its payload names the digest of the image. Sizes, counts and depths are bounded for any
// input.
//
// Formats: cosign's simple signing, DSSE envelopes with in-toto statements, sigstore bundles
// that are signed by a key, and JWS envelopes of notation. Keyless signatures, COSE envelopes
// and countersignatures of timestamp authorities are refused with the reason Unsupported.
//
// Rules of a policy file and of a TrustPolicy are one type, RuleSpec. Demands are the rules of all
// TrustPolicies; nodes apply them before they load an image.
//
// Inputs: bytes of layers with their annotations, a Policy, digests and repositories. Outputs:
// a Result with the signer, or with a reason word and a sentence. Callers: bundlewriter, the
// command line, the agent, the controller.
//
//	p, err := imageproof.Parse(imageproof.Layer{MediaType: m, Content: b, Annotations: a})
//	r := rule.Verify(imageproof.Target{Repository: repo, Digest: d}, proofs, now)
package imageproof
