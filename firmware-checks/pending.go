package checks

import "mkp2pimg/firmware-checks/facts"

func above4G(*facts.Facts) []Finding     { return nil }
func rebar(*facts.Facts) []Finding       { return nil }
func acsRedirect(*facts.Facts) []Finding { return nil }
func iommu(*facts.Facts) []Finding       { return nil }
func commandLine(*facts.Facts) []Finding { return nil }
