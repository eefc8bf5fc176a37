package imagecmd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/bootimage/ignition"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/convert"
)

// maxTokenLifetime of a token.
const maxTokenLifetime = 7 * 24 * time.Hour

func newToken(a *inputs.Access) *cobra.Command {
	var address, machine string
	var life time.Duration
	c := &cobra.Command{
		Use: "token POOL --url URL", Short: "Create the first-boot configuration for one machine, with a one-time token", Args: cobra.ExactArgs(1),
		Long: `Create the Ignition configuration to start one machine of a pool. Its only secret
is a token: that machine, and no other, uses it to fetch the pool's configuration
from refit's controller (-join-address). refit does not store the token: if it is
lost, create another.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			u, err := server(address)
			if err == nil && (life <= 0 || life > maxTokenLifetime) {
				err = fmt.Errorf("--for %s: must be more than 0 and at most %s", life, maxTokenLifetime)
			}
			if err == nil && !isMachine(machine) {
				err = fmt.Errorf("--machine %q: must be NAMESPACE/NAME", machine)
			}
			if err != nil {
				return console.UsageError(err)
			}
			cl, err := a.Client()
			if err != nil {
				return err
			}
			out, err := pointer(cmd.Context(), cl, args[0], machine, u, time.Now().Add(life))
			if err != nil {
				return err
			}
			fmt.Fprintln(a.Out, string(out))
			a.Note("for one machine of pool %s, within %s", args[0], life)
			return nil
		},
	}
	c.Flags().StringVar(&address, "url", "", "https://HOST:PORT under which machines reach the controller's -join-address")
	c.Flags().DurationVar(&life, "for", time.Hour, "how long the token may be used")
	c.Flags().StringVar(&machine, "machine", "", "NAMESPACE/NAME of the Machine object, to report a refused boot image there (default: found by its address)")
	_ = c.MarkFlagRequired("url")
	return c
}

func server(address string) (*url.URL, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" {
		return nil, fmt.Errorf("--url %q: must be https://HOST:PORT, under which machines reach the controller's -join-address", address)
	}
	return u, nil
}

// isMachine reports whether a value is NAMESPACE/NAME, or empty.
func isMachine(text string) bool {
	ns, name, ok := strings.Cut(text, "/")
	return text == "" || ok && ns != "" && name != ""
}

// pointer creates the token's record, after it checked the prerequisites.
func pointer(ctx context.Context, cl client.Client, pool, machine string, u *url.URL, until time.Time) ([]byte, error) {
	var held corev1.Secret
	if err := cl.Get(ctx, client.ObjectKey{Namespace: v1alpha1.SystemNamespace, Name: convert.Server}, &held); err != nil {
		return nil, fmt.Errorf("read the server's certificate authority, Secret %s/%s (the controller creates it when -join-address is set): %w", v1alpha1.SystemNamespace, convert.Server, err)
	}
	if len(held.Data["ca.crt"]) == 0 {
		return nil, fmt.Errorf("secret %s/%s has no ca.crt yet: try again in a moment", v1alpha1.SystemNamespace, convert.Server)
	}
	err := cl.Get(ctx, client.ObjectKey{Namespace: convert.JoinNamespace, Name: "first-boot-" + pool}, &corev1.Secret{})
	if apierrors.IsNotFound(err) {
		return nil, console.WithExit(console.ExitBlocked, fmt.Errorf("there is no configuration for pool %s: create Secret %s/first-boot-%s with the key %s", pool, convert.JoinNamespace, pool, convert.KeyConfig))
	}
	if err != nil {
		return nil, err
	}
	token, made, err := convert.NewJoinToken(pool, until)
	if err != nil {
		return nil, err
	}
	if machine != "" {
		made.Annotations[convert.AnnotationMachine] = machine
	}
	out, err := ignition.Pointer("https://"+u.Host+convert.Path+token, string(held.Data["ca.crt"]))
	if err != nil {
		return nil, err
	}
	if err := cl.Create(ctx, &corev1.Secret{ObjectMeta: made}); err != nil {
		return nil, errors.Join(errors.New("create the token's record"), err)
	}
	return out, nil
}
