package intake

import "context"

// Settle judges what is to be judged, and returns when nothing is left: for those
// who import without a server.
func (in *Intake) Settle(ctx context.Context) error {
	for {
		n, _, err := in.judgeSome(ctx)
		if n == 0 || err != nil {
			return err
		}
	}
}
