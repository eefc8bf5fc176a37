package imageproof

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Policy says which images must be signed by whom.
type Policy struct{ Rules []Rule }

// Rule is for the repositories that its pattern covers.
type Rule struct {
	// Images is a repository, a repository followed by /* for everything below it, or *.
	Images string
	// Keys of cosign, and Roots with Identities of notation. One valid signature is enough.
	Keys       []Key
	Roots      []*x509.Certificate
	Identities []Identity
	// AcceptUnsigned lets images pass without a signature.
	AcceptUnsigned bool
	// EachPlatform wants a signature of every platform's manifest, not one of the image's own digest.
	EachPlatform bool
	// SignedAs are patterns of further repositories that a payload may name, for copies of images.
	SignedAs []string

	// invalid: a TrustPolicy has it and it cannot be read. It refuses what its pattern covers.
	invalid error
}

// CheckPattern returns why a pattern of repositories is invalid, or nil.
func CheckPattern(s string) error {
	if s == "*" {
		return nil
	}
	bare := strings.TrimSuffix(s, "/*")
	host, rest, _ := strings.Cut(bare, "/")
	switch {
	case bare == "" || strings.Contains(bare, "*"):
		return fmt.Errorf("pattern %.120q: write a repository, REPOSITORY/* for everything below it, or *", s)
	case !strings.ContainsAny(host, ".:") && host != "localhost":
		return fmt.Errorf("pattern %.120q has no registry: write %s", s, NormalRepository(bare)+strings.TrimPrefix(s, bare))
	case strings.ContainsAny(rest, ":@") || strings.HasSuffix(bare, "/"):
		return fmt.Errorf("pattern %.120q: name repositories, without tag, digest and slash at the end", s)
	}
	return nil
}

// Validate returns why the policy is invalid, or nil.
func (p *Policy) Validate() error {
	if len(p.Rules) == 0 {
		return errors.New("the policy has no rules: add one for *")
	}
	seen := map[string]bool{}
	for i := range p.Rules {
		r := &p.Rules[i]
		if err := r.check(); err != nil {
			return fmt.Errorf("rule %d: %w", i+1, err)
		}
		if seen[r.Images] {
			return fmt.Errorf("rule %d: there is another rule for %s", i+1, r.Images)
		}
		seen[r.Images] = true
	}
	return nil
}

func (r *Rule) check() error {
	for _, s := range append([]string{r.Images}, r.SignedAs...) {
		if err := CheckPattern(s); err != nil {
			return err
		}
	}
	return r.checkTrust()
}

// checkTrust returns why the keys and roots do not fit together, or nil.
func (r *Rule) checkTrust() error {
	trusts := len(r.Keys) > 0 || len(r.Roots) > 0
	switch {
	case trusts && r.AcceptUnsigned:
		return fmt.Errorf("%s: accept: Unsigned and keys or roots exclude each other", r.Images)
	case !trusts && !r.AcceptUnsigned:
		return fmt.Errorf("%s: name cosign keys or notation roots, or write accept: Unsigned", r.Images)
	case len(r.Roots) > 0 && len(r.Identities) == 0:
		return fmt.Errorf("%s: notation has no identities: name subjects of certificates, or \"*\" for every certificate of the roots", r.Images)
	case len(r.Roots) == 0 && len(r.Identities) > 0:
		return fmt.Errorf("%s: notation has no roots: name the certificates that you trust", r.Images)
	}
	return nil
}

// covers reports whether a pattern covers a repository.
func covers(pattern, repository string) bool {
	if pattern == "*" || pattern == repository {
		return true
	}
	below, ok := strings.CutSuffix(pattern, "*")
	return ok && strings.HasPrefix(repository, below)
}

// RuleFor is the rule of a repository: the repository itself, then the longest pattern. It is
// nil if no rule covers the repository.
func (p *Policy) RuleFor(repository string) *Rule {
	var best *Rule
	for i := range p.Rules {
		r := &p.Rules[i]
		switch {
		case r.Images == repository:
			return r
		case covers(r.Images, repository) && (best == nil || len(r.Images) > len(best.Images)):
			best = r
		}
	}
	return best
}

// Target is what a signature must be about.
type Target struct{ Repository, Digest string }

// Result of one target: the signer, or the problem.
type Result struct {
	Signer  string
	Format  Format
	Problem *Problem
}

// Signer verifies who signed a proof. It does not compare what the proof is about.
func (r *Rule) Signer(p *Proof, now time.Time) (string, *Problem) {
	switch {
	case p.Format == FormatPlain:
		return "", problemf(Missing, "the document is not signed")
	case p.Format == FormatNotation && len(r.Roots) == 0:
		return "", problemf(WrongKey, "it is a signature of notation, and the rule for %s has no notation roots", r.Images)
	case p.Format == FormatNotation:
		return r.verifyChain(p, now)
	}
	for _, k := range r.Keys {
		if k.signed(p) {
			return k.String(), nil
		}
	}
	return "", problemf(WrongKey, "none of the keys of the rule for %s signed it", r.Images)
}

// VerifyProof compares one proof with a target: first who signed it, then what it is about.
func (r *Rule) VerifyProof(t Target, p *Proof, now time.Time) (string, *Problem) {
	signer, problem := r.Signer(p, now)
	if problem != nil {
		return "", problem
	}
	var others []string
	for _, c := range p.Claims {
		switch {
		case c.Digest != t.Digest:
			others = append(others, c.Digest)
		case c.Repository != "" && c.Repository != t.Repository && !slices.ContainsFunc(r.SignedAs, func(s string) bool { return covers(s, c.Repository) }):
			return "", problemf(Replayed, "%s signed it as an image of %s", signer, c.Repository)
		default:
			return signer, nil
		}
	}
	return "", problemf(WrongDigest, "%s signed %s", signer, strings.Join(others[:min(len(others), 3)], ", "))
}

// Verify returns the first signer whom the rule trusts for the target. Without one the result
// has the problem of the signature that came closest. Attestations are no signatures of an image.
func (r *Rule) Verify(t Target, proofs []*Proof, broken []*Problem, now time.Time) Result {
	var worst *Problem
	consider := func(p *Problem) {
		if worst == nil || closeness[p.Reason] > closeness[worst.Reason] {
			worst = p
		}
	}
	for _, p := range proofs {
		if p.Kind != KindSignature {
			continue
		}
		signer, problem := r.VerifyProof(t, p, now)
		if problem == nil {
			return Result{Signer: signer, Format: p.Format}
		}
		consider(problem)
	}
	for _, p := range broken {
		consider(p)
	}
	if worst == nil {
		worst = problemf(Missing, "it has no signature")
	}
	return Result{Problem: worst}
}
