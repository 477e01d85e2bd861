"""Short stop word lists of our own for English, Spanish and Catalan; other languages have none.

Only function words and question words stand here: a broad list throws away words that questions turn on.
Words that are content words with the same accents in a neighbouring language (es `sea`, ca `mes`) are left out.
"""

_ENGLISH = """
a about am an and any are aren't as at be been being but by can can't cannot could couldn't did didn't do does
doesn't doing don't during each for from had hadn't has hasn't have haven't having he her here hers him his how
i i'm if in into is isn't it it's its me my nor of on or our ours out over shall she should shouldn't so some such
than that that's the their theirs them then there there's these they they're this those through to too under up
us was wasn't we we're were weren't what what's when where where's which while who who's whom whose why will with
won't would wouldn't you your yours
"""

_SPANISH = """
a al algo algún alguna algunas alguno algunos ante aquel aquella aquellas aquello aquellos aquí así aunque como cómo
con cual cuál cuales cuáles cualquier cuando cuándo cuanta cuánta cuantas cuántas cuanto cuánto cuantos cuántos de
del desde donde dónde durante e el él ella ellas ellos en entre era eran es esa esas ese eso esos esta está estaba
están estar estas este esto estos fue fueron ha había haber han hasta hay he la las le les lo los me mi mis muy nos
nosotros o os para pero por porque porqué pues que qué quien quién quienes quiénes se según ser será serán si sí
sido sin sobre son su sus suya suyo también te tiene tienen tu tú tus u un una unas uno unos usted ustedes y ya yo
"""

_CATALAN = """
a això al algun alguna algunes alguns als altra altre amb aquell aquella aquelles aquells aquest aquesta
aquestes aquests així allò com d de del dels des doncs durant e el ella elles ells els em en entre era eren és
esta està estan estar et fins fou ha han havia haver he hi ho i jo l la les li llur llurs lo los malgrat me meu meva
mentre molt n ne nosaltres o on per perquè però pel pels qual quals qualsevol quan quant quanta quantes quants
que què qui s sa se segons sense ser serà seran seu seus seva seves si sí sobre són sota t també te tens té tenen
teu teva un una unes uns va van vostè vostès vosaltres
"""

# Accents are often left out in questions; only forms that mean nothing else are added.
_SPANISH_UNACCENTED = "algun aqui asi cuanta cuantas cuando cuantos cual donde estan quien quienes segun tambien"
_CATALAN_UNACCENTED = "aixo aixi allo perque pero tambe voste vostes"

BY_LANGUAGE: dict[str, frozenset[str]] = {
    "en": frozenset(_ENGLISH.split()),
    "es": frozenset(_SPANISH.split()) | frozenset(_SPANISH_UNACCENTED.split()),
    "ca": frozenset(_CATALAN.split()) | frozenset(_CATALAN_UNACCENTED.split()),
}
