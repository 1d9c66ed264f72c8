/* A module that imports from the kernel and from provider.S. */
	.section .modinfo, "a"
	.asciz "license=Dual MIT/GPL"
	.asciz "import_ns=ACME"
	.asciz "depends=prov"
	.asciz "name=user"
	.asciz "vermagic=6.12.1 SMP preempt mod_unload modversions "

	.text
	call printk@PLT
	call plain@PLT
	call plain_gpl@PLT
	.weak perhaps
	call perhaps@PLT

	.section __version_ext_crcs, "a"
	.long 0xaaaaaaaa, 0x11111111, 0x22222222
	.section __version_ext_names, "a"
	.asciz "printk"
	.asciz "plain"
	.asciz "plain_gpl"
