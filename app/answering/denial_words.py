"""Negations and the words around them that decide what is denied, in English, Spanish and Catalan. Pure data.

All without accents; verbs by the forms in which contracts and laws use them.
"""


def _listed(words: str) -> frozenset[str]:
    return frozenset(words.split())


# By language: `cap` is a limit in English and "no" in Catalan, `sense` likewise.
NEGATIONS = {
    "en": _listed("no not never neither nor without nothing cannot non none"),
    "es": _listed("no nunca jamas ningun ninguna ninguno sin ni tampoco nada non"),
    "ca": _listed("no mai cap sense sens ni tampoc res non"),
}
# They negate a noun ("no party", "ninguna parte") ...
DETERMINERS = _listed("no neither nor none ningun ninguna ninguno ni cap")
# ... and these a coordination whose predicate comes at its end.
COORDINATED = _listed("neither nor ni")
# Prepositions: they reach no verb that stands after them.
STRICT = _listed("without sin sense sens")
NOTHING = _listed("nothing nada res")
# A new clause begins.
BREAKS = {
    "en": _listed(
        "but however except unless although though because if when whether while until which who whose where"
    ),
    "es": _listed("pero sino salvo excepto aunque porque si cuando mientras hasta que cual cuales"),
    "ca": _listed("pero sino llevat excepte encara perque si quan mentre fins que qual quals"),
}
MODALS = _listed(
    """
    shall may must will would can could should is are was were
    podra podran puede pueden debera deberan debe deben sera seran
    pot poden haura hauran deu deuen
    """
)
# Before what is done to a subject.
PASSIVE_SIGNS = _listed(
    "is are was were be been being se es son sera seran fue queda quedan quedara esta estan s queden fou"
)
# Verbs that only carry the property: "does not contain", "no tendrá", "no comporta".
LIGHT = _listed(
    """
    have has had having do does did contain contains containing include includes including grant grants granting give
    gives giving create creates creating impose imposes establish establishes provide provides providing apply applies
    constitute constitutes exist exists bound subject entitled required obliged obligated confer confers
    require requires
    oblige obliges agree agrees accept accepts imply implies construed deemed considered regarded intended made granted
    given included provided created imposed enjoy enjoys offer offers event case circumstances
    tiene tienen tendra tendran tenga tengan contiene contienen contendra incluye incluyen incluira concede conceden
    concedera otorga otorgan otorgara crea crean impone imponen establece establecen preve preven existe
    existen existira
    hay habra constituye constituyen implica implican supone suponen obliga obligan reconoce reconocen goza gozan gozara
    disfruta disfrutara requiere exige celebra comporta confiere aplica aplicara acuerda pacta considerara
    entendera caso
    te tenen tindra tindran tingui conte contenen inclou inclouen concedeix concedira atorga atorguen imposa estableix
    estableixen preveu preveuen existeix existeixen hi ha constitueix suposa reconeix gaudeix gaudira requereix exigeix
    confereix acorda cas
    """
)
# Nouns that only carry the property: "exclusivity obligation", "carácter exclusivo".
CARRIERS = _listed(
    """
    agreement agreements contract contracts clause clauses provision provisions obligation obligations right rights term
    terms condition conditions basis nature character kind form undertaking commitment arrangement covenant duty duties
    section article paragraph party parties
    acuerdo contrato contratos clausula clausulas obligacion obligaciones derecho derechos caracter pacto tipo condicion
    condiciones compromiso regimen forma deber disposicion parte partes
    acord contracte contractes obligacio obligacions dret drets pacte tipus condicio condicions compromis regim deure
    disposicio part parts
    """
)
# Said of a subject that is not there: "exclusivity is not granted", "no se aplica".
REALISED = _listed(
    """
    exist exists apply applies applicable granted given included provided agreed permitted allowed required offered
    foreseen created conferred established available due payable imposed contemplated intended admitted accepted
    existe existen existira aplica aplican aplicara aplicable concede concedida concedido incluye incluida
    incluido preve
    prevista previsto permite permitida permitido pacta pactada pactado admite admitida procede procedera exige exigida
    exigible contempla contemplada establece establecida establecido reconoce reconocida ofrece otorga otorgada vigente
    existeix aplica concedeix concedit inclou inclosa inclos preveu previst permet permesa permes pactat admet admesa
    procedeix exigeix contemplat estableix establerta establert reconeix reconeguda ofereix atorga vigent
    """
)
# What is disclosed, ended or limited is there: a negation of these denies nothing.
PRESUPPOSING = _listed(
    """
    disclose discloses disclosed disclosing disclosure reveal divulge breach breaches breached violate violates infringe
    terminate terminates terminated cancel cancels revoke revoked modify modified amend amended vary varied limit limits
    limiting limited limitation restrict restricts restricted restricting affect affects affected affecting prejudice
    prejudiced impair impairs diminish withhold withheld deny delay delayed failure fail fails lose loses
    challenge contest
    exercise exercises exercised refuse refuses unreasonably
    revelar divulgar incumplir incumplimiento vulnerar resolver rescindir cancelar revocar modificar limitar limita
    limitara restringir afectar afecta afectara perjuicio perjudicar perjudica menoscabar retrasar denegar
    perder impugnar
    ejercer ejerce ejercita ejercitar exercir exerceix
    incomplir incompliment resoldre cancellar afectar perjudici endarrerir perdre
    """
)
# Somebody does away with it: verbs before it, and participles on either side.
REFUSES = _listed(
    """
    waive waives waiving exclude excludes excluding disclaim disclaims disclaiming prohibit prohibits prohibiting forbid
    forbids lack lacks lacking renounce renounces relinquish relinquishes absence
    excluye excluyen excluir excluyendo renuncia renuncian renunciar renunciando prohibe prohiben prohibir
    carece carecen
    ausencia rechaza rechazan
    exclou exclouen excloure renuncien prohibeix prohibeixen manca absencia rebutja rebutgen
    """
)
REFUSED = _listed(
    """
    excluded waived disclaimed prohibited forbidden void renounced absent deleted
    excluida excluido excluidas excluidos prohibida prohibido prohibidas prohibidos vedada vedado nula nulo
    suprimida suprimido eliminada eliminado
    exclosa exclos excloses exclosos prohibit prohibides prohibits nulla nul suprimit eliminat
    """
)
# A property that is itself a ban ("prohibition of assignment", "se prohíbe la cesión") or a limit ("cap on liability").
BANS = (
    _listed(
        """
        prohibition prohibitions ban bans waiver waivers exclusion exclusions restriction restrictions
        prohibicion prohibiciones renuncia renuncias restriccion restricciones
        prohibicio prohibicions exclusio restriccio restriccions
        """
    )
    | REFUSES
    | REFUSED
)
LIMITS = _listed(
    """
    limit limits limited limitation limitations cap caps capped ceiling
    limite limites limitada limitado limitacion limitaciones tope topes
    limitat limitacio limitacions topall topalls
    """
)
UNLIMITED = _listed("unlimited uncapped limitless ilimitada ilimitado illimitada illimitat")
# "Shall not exceed" sets a limit and denies nothing.
EXCEEDS = _listed(
    """
    exceed exceeds exceeding exceder excedera exceda superar superara supere sobrepasar excedir excedira superi
    sobrepassar
    """
)
COMPARATIVES = _listed(
    "more less fewer greater later longer earlier lower higher mas menos mayor menor superior inferior menys major"
)
THAN = _listed("than to de del que a al d")
ONLY = _listed("only solely merely solo solamente unicamente nomes solament unicament")
DEFINITE = _listed(
    """
    the this these those such its their his her our your said
    el la los las este esta estos estas dicho dicha su sus al del
    els les l aquest aquesta aquests aquestes seu seva dit dita
    """
)
# After a noun they are negative themselves: "exclusividad alguna".
POSTPOSED = _listed("alguna alguno")
COORDINATORS = _listed("and or y e o u i")
