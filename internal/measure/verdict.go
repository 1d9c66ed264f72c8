package measure

// Verdict is the answer for a GPU, a pair, or a run.
type Verdict string

// The verdicts, from best to worst; the verdict of a run is the worst of its
// parts.
const (
	OK           Verdict = "ok"           // right data at no suspicious speed
	Slow         Verdict = "slow"         // right data, but slower than it should be
	Inconclusive Verdict = "inconclusive" // could not tell
	Unusable     Verdict = "unusable"     // refused by the driver, or every try fails
	Hang         Verdict = "hang"         // an operation did not end
	WrongData    Verdict = "wrong-data"   // data did not arrive as sent, at whatever speed
)
