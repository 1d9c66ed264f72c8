package report

import checks "mkp2pimg/firmware-checks"

// Finding writes a finding of the checks: a diagnosis for programs that know
// only the specification, and the whole finding as an extension. A finding that
// does not apply to the machine (skip) is no diagnosis. Warn becomes FAIL, since
// the specification knows no outcome between the two.
func (s *Step) Finding(f checks.Finding) {
	kinds := map[checks.Status]DiagnosisType{
		checks.Pass: DiagnosisPass, checks.Warn: DiagnosisFail, checks.Fail: DiagnosisFail, checks.Unknown: DiagnosisUnknown,
	}
	if kind, ok := kinds[f.Status]; ok {
		d := Diagnosis{Verdict: string(f.ID), Type: kind, Message: f.Title}
		if len(f.Devices) == 1 {
			d.HardwareID = f.Devices[0]
		}
		s.Diagnosis(d)
	}
	s.Extension(ExtFinding, f)
}

// Verdict writes the answer of the run: a diagnosis and an extension.
func (s *Step) Verdict(v Verdict) {
	kind := DiagnosisUnknown
	switch v.Verdict {
	case checks.VerdictReady:
		kind = DiagnosisPass
	case checks.VerdictDegraded, checks.VerdictBlocked:
		kind = DiagnosisFail
	}
	s.Diagnosis(Diagnosis{Verdict: string(v.Verdict), Type: kind, Message: v.Reason})
	s.Extension(ExtVerdict, v)
}

// Outcome returns how a run with this verdict ends. Only READY is a pass;
// without GPUs the run is skipped; a verdict that could not be reached, or a
// stage that broke (unless what it could not tell no longer matters: BLOCKED is
// a failure anyway), is an error.
func Outcome(v checks.Verdict, broken bool) (Status, Result) {
	switch {
	case v == checks.VerdictBlocked:
		return StatusComplete, ResultFail
	case broken:
		return StatusError, ResultNotApplicable
	case v == checks.VerdictReady:
		return StatusComplete, ResultPass
	case v == checks.VerdictDegraded:
		return StatusComplete, ResultFail
	case v == checks.VerdictNoGPU:
		return StatusSkip, ResultNotApplicable
	}
	return StatusError, ResultNotApplicable
}
