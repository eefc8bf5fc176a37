package updatecmd

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1alpha1 "github.com/refit-dev/refit/api/v1alpha1"
	"github.com/refit-dev/refit/internal/cli/console"
	"github.com/refit-dev/refit/internal/cli/inputs"
	"github.com/refit-dev/refit/internal/componentversion"
	"github.com/refit-dev/refit/internal/convert/rolloutfacts"
	"github.com/refit-dev/refit/internal/explain"
	"github.com/refit-dev/refit/internal/fsutil"
	"github.com/refit-dev/refit/internal/model"
	"github.com/refit-dev/refit/internal/text"
)

type receiptCommand struct {
	*inputs.Access
	output, key, site string
	contact           []string
	text              bool
}

// NewReceipt returns the command.
func NewReceipt(a *inputs.Access) *cobra.Command {
	r := &receiptCommand{Access: a}
	c := &cobra.Command{
		Use:   "receipt [UPDATE]",
		Short: "Write a receipt of an update, for an office without a line to the site",
		Long: `Write what an update did to this cluster: versions, counts of nodes, failed nodes with
their reasons, and times. The file has at most 16 KiB, for any number of nodes.

Without UPDATE it is about the newest update that is done or halted, else about the
current one. The receipt of an update that still runs says that it is not finished.

If --output is a directory, such as a mounted USB stick, the file there gets the name
refit-receipt-CLUSTER-UPDATE-DATE.json. It is complete when the command ends.
refit receipts adds up the receipts of many sites, files and texts.`,
		Example: "  refit receipt --output /media/stick --key site.key --site north",
		Args:    console.Args(cobra.MaximumNArgs(1)),
		RunE:    func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args) },
	}
	f := c.Flags()
	f.StringVar(&r.output, "output", "", "file or directory to write to, - for standard output (default the current directory; with --text -)")
	f.StringVar(&r.key, "key", "", "private key (refit.key) to sign the receipt with")
	f.StringVar(&r.site, "site", "", "name of the site, for people")
	f.StringArrayVar(&r.contact, "contact", nil, "line with the person to ask; up to 3")
	f.BoolVar(&r.text, "text", false, "write short lines for a mail, paper or a phone instead of JSON")
	r.FromFlag(f)
	return c
}

func (r *receiptCommand) run(ctx context.Context, args []string) error {
	key, err := r.privateKey()
	if err != nil {
		return err
	}
	c, now, err := r.Reader()
	if err != nil {
		return err
	}
	facts, err := r.gather(ctx, c, args)
	if err != nil {
		return err
	}
	facts.Now, facts.Site, facts.Contact, facts.Refit = now, r.site, r.contact, componentversion.Refit()
	receipt := explain.NewReceipt(facts)
	if err := r.checkWords(receipt); err != nil {
		return err
	}
	file, err := explain.NewReceiptFile(receipt, key)
	if err != nil {
		return err
	}
	if !receipt.Finished {
		r.Note("update %s is in phase %s: the receipt says that it is not finished. Write another one when it is.", receipt.Update, receipt.Phase)
	}
	return r.write(file)
}

func (r *receiptCommand) privateKey() (ed25519.PrivateKey, error) {
	if r.key == "" {
		return nil, nil
	}
	return inputs.ReadPrivateKey(r.key)
}

// checkWords refuses texts that the receipt cuts or changes.
func (r *receiptCommand) checkWords(made explain.Receipt) error {
	if made.Site != strings.TrimSpace(r.site) {
		return console.UsageErrorf("--site %q: use one line of at most 64 bytes", r.site)
	}
	if !slices.EqualFunc(made.Contact, r.contact, func(a, b string) bool { return a == strings.TrimSpace(b) }) {
		return console.UsageErrorf("--contact: use up to 3 lines of at most 128 bytes")
	}
	return nil
}

// gather reads the objects of an update.
func (r *receiptCommand) gather(ctx context.Context, c client.Reader, args []string) (explain.ReceiptFacts, error) {
	var f explain.ReceiptFacts
	u, err := r.chooseUpdate(ctx, c, args)
	if err != nil {
		return f, err
	}
	cluster, err := inputs.ClusterID(ctx, c)
	if err != nil {
		return f, err
	}
	var nodes corev1.NodeList
	var nus v1alpha1.NodeUpdateList
	var bundles v1alpha1.BundleList
	for _, l := range []client.ObjectList{&nodes, &nus, &bundles} {
		if err := c.List(ctx, l); err != nil {
			return f, inputs.ListError(err)
		}
	}
	plan, err := receiptPlan(ctx, c, u)
	if err != nil {
		return f, err
	}
	f = rolloutfacts.ReceiptFacts(u, plan, nodes.Items, nus.Items, bundles.Items)
	f.Cluster = cluster
	return f, nil
}

// chooseUpdate returns the named update, or the newest that is done or halted.
func (r *receiptCommand) chooseUpdate(ctx context.Context, c client.Reader, args []string) (*v1alpha1.ClusterUpdate, error) {
	if len(args) > 0 {
		return inputs.FindUpdate(ctx, c, args)
	}
	var list v1alpha1.ClusterUpdateList
	if err := c.List(ctx, &list); err != nil {
		return nil, inputs.ListError(err)
	}
	u := rolloutfacts.ChooseReceiptUpdate(list.Items)
	if u == nil {
		return nil, console.UsageErrorf("there is no update: a receipt is about one")
	}
	if current := rolloutfacts.ChooseUpdate(list.Items); current.Name != u.Name {
		r.Note("update %s is in phase %s: refit receipt %s is about it", current.Name, current.Status.Phase, current.Name)
	}
	return u, nil
}

// receiptPlan reads the plan of an update, nil if there is none any more. A plan with another
// digest is refused.
func receiptPlan(ctx context.Context, c client.Reader, u *v1alpha1.ClusterUpdate) (*model.Plan, error) {
	if u.Status.Plan == "" {
		return nil, nil
	}
	p, err := loadPlan(ctx, c, u.Status.Plan)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read the plan %s: %w", u.Status.Plan, err)
	}
	if got := p.Digest(); got != u.Status.PlanDigest {
		return nil, console.WithExit(console.ExitVerification, fmt.Errorf("plan %s has digest %s, the update expects %s", u.Status.Plan, got, u.Status.PlanDigest))
	}
	return &p, nil
}

// write writes the file, and reports what is in it.
func (r *receiptCommand) write(file explain.ReceiptFile) error {
	data, extension := file.JSON(), ".json"
	if r.text {
		data, extension = []byte(file.Text()), ".txt"
	}
	output := r.output
	switch {
	case output == "" && r.text:
		output = "-"
	case output == "":
		output = "."
	}
	if output == "-" {
		r.Note("%s", signedWords(file))
		_, err := r.Out.Write(data)
		return err
	}
	path, err := receiptPath(output, receiptName(file.Receipt)+extension)
	if err != nil {
		return err
	}
	if err := fsutil.WriteFile(path, data, 0o644); err != nil { // another account reads it in the office
		return err
	}
	n := file.Receipt.Nodes
	_, err = fmt.Fprintf(r.Out, "%s: update %s is %s, %d of %s done. %s\n", path, file.Receipt.Update, file.Receipt.Phase, n.Done, text.Count(n.Total, "node"), signedWords(file))
	return err
}

func signedWords(f explain.ReceiptFile) string {
	if f.Envelope == nil {
		return "The receipt is not signed: anyone could have written it. --key KEY signs it."
	}
	return "The receipt is signed with key " + f.Envelope.Signatures[0].KeyID + "."
}

// receiptPath returns the path of a file: in a directory it gets the name. The directory must
// exist, because a stick that is not mounted must not become a directory of this computer.
func receiptPath(output, name string) (string, error) {
	st, err := os.Stat(output)
	switch {
	case err == nil && st.IsDir():
		return filepath.Join(output, name), nil
	case err == nil && !st.Mode().IsRegular():
		return "", console.UsageErrorf("--output %s is neither a file nor a directory: mount the stick, and name its directory", output)
	case err == nil:
		return output, nil
	}
	if dir, err := os.Stat(filepath.Dir(output)); err != nil || !dir.IsDir() || strings.HasSuffix(output, string(filepath.Separator)) {
		return "", console.UsageErrorf("--output %s: there is no such directory. Is the stick mounted?", output)
	}
	return output, nil
}

// unfit are characters that FAT, or a shell, does not take in a name.
var unfit = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// receiptName is the name of a receipt's file, without its extension.
func receiptName(r explain.Receipt) string {
	return "refit-receipt-" + text.Prefix(unfit.ReplaceAllString(r.Cluster, "_"), 8) + "-" + text.Prefix(unfit.ReplaceAllString(r.Update, "_"), 63) + "-" + r.CreatedAt.Format("20060102-150405")
}
