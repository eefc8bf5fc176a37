package statuspage

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/util/flowcontrol"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Paths that a person must be allowed to get, as nonResourceURLs of a ClusterRole.
const (
	PathStatus     = "/refit/status"
	PathTechnician = "/refit/technician"
)

// An answer of the API server is valid for answerAge. It is asked at most reviewRate times a
// second, so that requests with wrong tokens do not load it.
const (
	answerAge    = time.Minute
	maxAnswers   = 1000
	reviewRate   = 20
	reviewBurst  = 40
	maxTokenSize = 8 << 10
)

// access asks the API server who may see what.
type access struct {
	client client.Client
	now    func() time.Time
	limit  flowcontrol.RateLimiter
	// roles names the roles that permit a reader.
	roles string
	// audience that a token must be for; empty for the API server's own.
	audience string

	mu      sync.Mutex
	answers map[[sha256.Size]byte]accessAnswer
}

type accessAnswer struct {
	code int
	why  string
	at   time.Time
}

func newAccess(c client.Client, now func() time.Time, roles string) *access {
	return &access{client: c, now: now, roles: roles, limit: flowcontrol.NewTokenBucketRateLimiter(reviewRate, reviewBurst), answers: map[[sha256.Size]byte]accessAnswer{}}
}

// check returns 200, or the status code and the text of a refusal.
func (a *access) check(ctx context.Context, token, path string) (code int, why string) {
	switch {
	case token == "":
		return http.StatusUnauthorized, "a token is missing: send a bearer token, or enter it as the password; kubectl create token makes one"
	case len(token) > maxTokenSize:
		return http.StatusUnauthorized, fmt.Sprintf("the token has more than %d bytes: copy it again", maxTokenSize)
	}
	key := sha256.Sum256([]byte(path + "\x00" + token))
	if old, ok := a.known(key); ok {
		return old.code, old.why
	}
	if !a.limit.TryAccept() {
		return http.StatusTooManyRequests, "too many tokens are being checked: try again in some seconds"
	}
	code, why, err := a.review(ctx, token, path)
	if err != nil {
		return http.StatusServiceUnavailable, "the API server did not check the token: try again; the controller needs to create TokenReviews and SubjectAccessReviews, which refit install permits"
	}
	a.remember(key, accessAnswer{code: code, why: why, at: a.now()})
	return code, why
}

func (a *access) known(key [sha256.Size]byte) (accessAnswer, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old, ok := a.answers[key]
	age := a.now().Sub(old.at)
	return old, ok && age >= 0 && age < answerAge
}

func (a *access) remember(key [sha256.Size]byte, answer accessAnswer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.answers) >= maxAnswers {
		clear(a.answers)
	}
	a.answers[key] = answer
}

// review asks for the user of the token, and then whether that user may get the path.
func (a *access) review(ctx context.Context, token, path string) (code int, why string, err error) {
	tr := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	if a.audience != "" {
		tr.Spec.Audiences = []string{a.audience}
	}
	if err := a.client.Create(ctx, tr); err != nil {
		return 0, "", fmt.Errorf("check a token: %w", err)
	}
	// An API server that does not know audiences names none.
	if !tr.Status.Authenticated || a.audience != "" && !slices.Contains(tr.Status.Audiences, a.audience) {
		return http.StatusUnauthorized, "the API server does not know this token: it may have expired; kubectl create token makes another", nil
	}
	u := tr.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for k, v := range u.Extra {
		extra[k] = authorizationv1.ExtraValue(v)
	}
	sar := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: u.Username, Groups: u.Groups, UID: u.UID, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: path, Verb: "get"}}}
	if err := a.client.Create(ctx, sar); err != nil {
		return 0, "", fmt.Errorf("check the rights of a user: %w", err)
	}
	if !sar.Status.Allowed {
		return http.StatusForbidden, fmt.Sprintf("%s may not get %s: bind %s with a ClusterRoleBinding", u.Username, path, a.roles), nil
	}
	return http.StatusOK, "", nil
}

// TokenGuard answers only requests with a token whose user may get the path: the API server
// decides. role is the ClusterRole that permits it.
func TokenGuard(c client.Client, now func() time.Time, path, role string, next http.Handler) http.Handler {
	return guardWith(newAccess(c, now, "the ClusterRole "+role), tokenOf, path, next)
}

// AudienceGuard is TokenGuard for tokens of one audience, in a header of their own. No other token
// of a user is valid, and a token that is seen here is valid nowhere else.
func AudienceGuard(c client.Client, now func() time.Time, header, audience, path, role string, next http.Handler) http.Handler {
	a := newAccess(c, now, "the ClusterRole "+role)
	a.audience = audience
	return guardWith(a, func(r *http.Request) string { return r.Header.Get(header) }, path, next)
}

func guardWith(a *access, tokenIn func(*http.Request) string, path string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), requestDeadline)
		defer cancel()
		code, why := a.check(ctx, tokenIn(r), path)
		if code == http.StatusOK {
			next.ServeHTTP(w, r)
			return
		}
		if code == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="refit"`)
		}
		http.Error(w, why, code)
	})
}

// tokenOf returns the bearer token of a request. Browsers send it as the password of basic
// authentication, with any user name.
func tokenOf(r *http.Request) string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	_, password, _ := r.BasicAuth()
	return strings.TrimSpace(password)
}

// IsLoopback reports whether a host is this machine itself. An empty host is all addresses.
func IsLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// hostOf returns the host of a Host header, without a port.
func hostOf(header string) string {
	if host, _, err := net.SplitHostPort(header); err == nil {
		return host
	}
	return strings.Trim(header, "[]")
}
