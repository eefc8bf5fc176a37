package bootcmd

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/cluster"
	"github.com/refit-dev/refit/internal/cli/exit"
)

// Upload is a file that somebody must bring to its platform.
type Upload struct {
	v1alpha1.BootImageUpload `json:",inline"`
	// Sources that wait for it.
	Sources []string `json:"sources"`
}

// Uploads of all sources.
type Uploads struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Items      []Upload `json:"items"`
}

func newUploads(a *cluster.Access) *cobra.Command {
	var from view
	c := &cobra.Command{
		Use: "uploads", Short: "Show which boot images must be uploaded before machines can start from them, and how", Args: cobra.NoArgs,
		Long: `Show the files of the streams that machine managers wait for: where a platform has
no public image (vSphere, OpenStack, Nutanix, a web server for bare metal), somebody
brings the file there. The commands that are printed fetch or extract it, check it,
upload it, and say that it is there. refit has no access to the platform and cannot
see whether it is.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := from.site(cmd, a)
			if err != nil {
				return err
			}
			v := s.uploads()
			return from.show(a, v)
		},
	}
	from.add(c)
	return c
}

// uploads: sources that wait for the same steps are said once.
func (s *site) uploads() Uploads {
	v := Uploads{APIVersion: "refit.dev/bootimageuploads/v1", Kind: "BootImageUploads", Items: []Upload{}}
	at := map[string]int{}
	for i := range s.sources {
		m := &s.sources[i]
		if m.Status.Upload == nil {
			continue
		}
		key := strings.Join(m.Status.Upload.Steps, "\n")
		n, ok := at[key]
		if !ok {
			n = len(v.Items)
			at[key] = n
			v.Items = append(v.Items, Upload{BootImageUpload: *m.Status.Upload})
		}
		v.Items[n].Sources = append(v.Items[n].Sources, m.Name)
	}
	return v
}

func (v Uploads) text(w io.Writer) {
	if len(v.Items) == 0 {
		fmt.Fprintln(w, "Nothing to upload: no source waits for a file.")
	}
	for _, u := range v.Items {
		fmt.Fprintf(w, "# %s, for %s\n%s\n\n", u.File, strings.Join(u.Sources, ", "), strings.Join(u.Steps, "\n"))
	}
}

var hexSum = regexp.MustCompile(`^[0-9a-f]{64}$`)

func newUploaded(a *cluster.Access) *cobra.Command {
	var region, file string
	var set map[string]string
	c := &cobra.Command{
		Use: "uploaded STREAM SHA256 [--region R] [--set ATTRIBUTE=VALUE]", Short: "Say that a boot image of a stream was uploaded, and under which name", Args: cobra.ExactArgs(2),
		Long: `Say that the file of a stream with this SHA-256 is where machines can start from it.
Until then no machine manager names it; from then on those do that select it. What is
said is written to spec.uploaded of the BootImageStream; nobody can see whether it is
true, except that --file compares the file that was uploaded.`,
		Example: "  refit bootimage uploaded rhcos-4.19 3f5c... --set template=/dc1/vm/rhcos-9.6.20251023-0",
		RunE: func(cmd *cobra.Command, args []string) error {
			u := v1alpha1.UploadedImage{SHA256: args[1], Region: region, Attributes: set}
			if err := checkUpload(u, file); err != nil {
				return err
			}
			cl, err := a.Client()
			if err != nil {
				return err
			}
			said, err := declare(cmd.Context(), cl, args[0], u)
			if err == nil {
				a.Note("%s", said)
			}
			return err
		},
	}
	c.Flags().StringVar(&region, "region", "", "where it is, in the words of the policy (default everywhere)")
	c.Flags().StringToStringVar(&set, "set", nil, "an attribute that names it there, for example template=PATH, name=NAME, id=ID")
	c.Flags().StringVar(&file, "file", "", "the file that was uploaded: it must have this SHA-256")
	return c
}

// checkUpload before anything is written.
func checkUpload(u v1alpha1.UploadedImage, file string) error {
	if !hexSum.MatchString(u.SHA256) {
		return exit.Usagef("%q is no SHA-256 in lower-case hex: refit bootimage uploads prints it", u.SHA256)
	}
	for k, v := range u.Attributes {
		if k == "" || v == "" || v == strings.ToUpper(k) {
			return exit.Usagef("--set %s=%s: put in what it is called there", k, v)
		}
	}
	if file == "" {
		return nil
	}
	f, err := os.Open(file)
	if err != nil {
		return exit.Usage(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != u.SHA256 {
		return exit.With(exit.Verification, fmt.Errorf("%s has the SHA-256 %s, not %s: it is not the file, or not complete", file, got, u.SHA256))
	}
	return nil
}

// mostUploads of a stream, as the API bounds them.
const mostUploads = 64

// declare writes the upload, in place of what was said of the same file and region.
func declare(ctx context.Context, cl client.Client, stream string, u v1alpha1.UploadedImage) (string, error) {
	var o v1alpha1.BootImageStream
	if err := cl.Get(ctx, client.ObjectKey{Name: stream}, &o); err != nil {
		return "", fmt.Errorf("BootImageStream %s: %w", stream, err)
	}
	same := func(x v1alpha1.UploadedImage) bool { return x.SHA256 == u.SHA256 && x.Region == u.Region }
	if n := slices.IndexFunc(o.Spec.Uploaded, same); n >= 0 && maps.Equal(o.Spec.Uploaded[n].Attributes, u.Attributes) {
		return "that was said already", nil
	}
	before := o.DeepCopy()
	o.Spec.Uploaded = append(slices.DeleteFunc(o.Spec.Uploaded, same), u)
	if len(o.Spec.Uploaded) > mostUploads {
		return "", exit.With(exit.Blocked, fmt.Errorf("BootImageStream %s has %d uploads already: take out those of former releases (spec.uploaded)", stream, mostUploads))
	}
	if err := cl.Patch(ctx, &o, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("refit-cli")); err != nil {
		return "", fmt.Errorf("BootImageStream %s: %w", stream, err)
	}
	return "noted; refit bootimage status shows within half a minute whether the stream has such a file", nil
}
