"""The words by which questions say what is to be done, in English, Spanish and Catalan. Pure data.

Patterns are written as `app.retrieval.tasks` reads a question: small letters without accents (but `és`, `més`, `qué`,
`són`, whose accents tell them from other words), words and commas one space apart, elided words alone (`d' acord`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Nouns:
    """Nouns that mean a document: patterns of the singular and plural forms."""

    one: str
    many: str


@dataclass(frozen=True, slots=True)
class Cues:
    """The cue words of one language, each a regular expression without groups that capture."""

    language: str
    #: Documents in general: "how many documents are there" asks about nothing in them.
    documents: Nouns
    #: Kinds of papers; these and `documents` are also what a text asks people to hand over.
    papers: Nouns
    records: Nouns
    #: They also govern contracts: "which law applies" asks for one fact.
    laws: Nouns
    #: Words between the counting words and the noun: "supply agreements".
    modifiers: str
    #: What follows "which contract" when it is not "which contract clause".
    after_single: str
    determiners: str
    prepositions: str
    #: Before "all documents" when those of the collection are meant.
    before_all: str
    how_many: str
    number_of: str
    which: str
    list_verbs: str
    #: "all", "every", "each" before a document.
    every: str
    #: "all the", "each of the": these documents, not any that there will ever be.
    definite: str
    #: "list all", "what are all", whatever follows.
    list_all: str
    whole: str
    governs: str
    handed_over: str
    superlative: str
    compare: str
    summarise: str
    #: "What is {noun} about?"
    about_what: str
    asking: str
    polite: str
    #: Verbs that say that a document holds something, and nothing of what it holds.
    holds: str
    #: The other words that may stand before what is asked about.
    lead: str
    #: The document does not hold what follows.
    absent: str
    trailing: str


def _any(words: str) -> str:
    """Alternatives from words or patterns parted by white space; `_` stands for a space within one."""
    return "(?:" + "|".join(words.split()).replace("_", " ") + ")"


def _nouns(pairs: str) -> Nouns:
    one, many = zip(*(pair.split("/") for pair in pairs.split()), strict=True)
    return Nouns(_any(" ".join(one)), _any(" ".join(many)))


_EN_HOLDS = _any(
    """
    have has having contain(?:s|ing)? includ(?:e|es|ing) mention(?:s|ing)? featur(?:e|es|ing) provid(?:e|es|ing)_for
    refer(?:s|ring)?_to talk(?:s|ing)?_about deal(?:s|ing)?_with speak(?:s|ing)?_of show(?:s|ing)?
    """
)
_EN_ONE_VERB = _any(
    """
    is was has had have does did do can could may might must shall should will would that which with without of between
    for in from on by to signed dated contains includes mentions allows requires provides states says covers governs
    expires ends starts begins sets gives names uses lacks deals refers talks permits prohibits forbids describes shows
    imposes limits binds applies introduces proposes presents discusses regulates renews grants specifies defines
    addresses belongs costs runs needs guarantees excludes waives restricts protects
    """
)
_EN_HANDS = _any(
    "provid submit present attach deliver bring send suppl furnish keep kept retain return produc archiv destroy file"
)
_EN_MAKE = _any("give write make provide prepare show get create draft do have produce need want")
ENGLISH = Cues(
    language="en",
    documents=_nouns("document/documents doc/docs file/files"),
    papers=_nouns(
        """
        report/reports letter/letters invoice/invoices email/emails e-mail/e-mails memo/memos memorandum/memoranda
        paper/papers manual/manuals presentation/presentations spreadsheet/spreadsheets transcript/transcripts
        filing/filings receipt/receipts payslip/payslips proposal/proposals tender/tenders cv/cvs ruling/rulings
        judgment/judgments judgement/judgements decree/decrees ordinance/ordinances
        """
    ),
    records=_nouns(
        """
        contract/contracts agreement/agreements lease/leases sublease/subleases nda/ndas msa/msas sow/sows deed/deeds
        amendment/amendments addendum/addenda policy/policies
        """
    ),
    laws=_nouns("law/laws statute/statutes regulation/regulations"),
    # Not "days do the contracts", not "people sign contracts".
    modifiers=(
        r"(?:(?!(?:of|in|on|at|to|by|for|from|with|without|under|and|or|the|an?|is|are|was|were|do|does|did|have|has|had"
        r"|can|could|may|must|shall|should|will|would|that|which|whose|when|if|each|every|all|people|persons|me|us)\b"
        r"|(?!sales|services|goods|business|works|employees)\w+s\b)[\w-]+ ){0,2}"
    ),
    after_single=rf"(?= {_EN_ONE_VERB}\b|$)",
    determiners=_any("of the these those this our my their your all any one"),
    prepositions=_any("in of for under with from by to among amongst out_of"),
    before_all=_any("in of for under with from across throughout over among do does did"),
    how_many="how many",
    number_of=_any("(?:what|which)_number_of what_(?:is|s)_the_number_of count"),
    which=_any("which_ones which what"),
    list_verbs=(
        _any("list enumerate name identify find show give display get extract tell compile make need want")
        + r"(?: me| us)?(?: (?:a|the)(?: complete| full)? (?:list|names) of)?"
    ),
    every=_any("every_single every_one every each_one each all"),
    definite="(?:of )?(?:the|these|those|our)",
    list_all=(
        _any(
            """
            list enumerate name identify find show give display get extract tell collect state make compile what_are
            which_are where_are who_are
            """
        )
        + r"(?: me| us)?(?: (?:a|the) list of)? (?:all|every|each)(?! (?:day|week|month|quarter|year|time|at once)\b)"
    ),
    whole=_any(
        """
        (?:whole|entire|complete)_(?:collection|corpus|archive|data_?room|folder|set_of_documents)
        (?:tell_me|tell_us|list|find|say)_everything
        """
    ),
    governs=_any("govern appl control (?:is|are)_applicable"),
    handed_over=(
        _any(
            "(?:do|does|did)_(?:i|we|you)_need (?:i|we)_need (?:are|is)_(?:needed|required|necessary|attached|enclosed)"
        )
        + rf"|\b(?:must|should|shall|have to|has to|do|does)\b(?: \S+){{0,6}}? {_EN_HANDS}"
    ),
    superlative=(
        r"the (?:\w+ )?(?:longest|shortest|highest|lowest|largest|smallest|biggest|greatest|earliest|latest|oldest"
        r"|newest|strictest|broadest|widest|cheapest|strongest|weakest|worst|fewest|best(?! effort| endeavour)"
        r"|(?:most|least)(?! fav))\b|(?:first|last|soonest|earliest|latest)$"
        r"|is (?:cheaper|longer|shorter|better|worse|older|newer|higher|lower|stricter|larger|bigger"
        r"|more (?!than\b)\w+)(?! than)\b"
    ),
    compare=(
        r"\b(?:compare|versus|vs|contradict|contradictions?|inconsistenc(?:y|ies)"
        r"|how different|have in common|(?<!in )comparison (?:of|between))\b|^(?:comparing|contrast)\b"
        r"|\b(?:how|do|does|did|in what ways?)\b[^,]* differ\b"
        r"|(?:^|\b(?:what|what is|what s|what are|what were|describe|any|list|show|identify|give|tell me|explain) )"
        r"(?:(?:the|me|main|key|all|major|biggest|important|most|are|there|some|a) ){0,4}(?:differenc|similarit)"
    ),
    summarise=(
        r"\b(?<!who )(?<!does )(?<!did )(?<!must )(?<!shall )summari[sz](?:e|ing)\b|\btl dr\b"
        r"|\bsum (?:it |this |them )?up\b"
        rf"|(?:^|\b(?:please|{_EN_MAKE}|{_EN_MAKE} me|{_EN_MAKE} us) )(?:(?:a|an|the) )?"
        r"(?:(?:short|brief|quick|general|good|concise|one-page) )?(?:summary|overview|synopsis|outline)\b"
        r"|\b(?:main|key|most important) (?:points|terms|messages|takeaways|ideas)\b"
    ),
    about_what=r"what (?:is|are|was|were|s) {noun} about",
    asking=_any("who whom whose what which when where why how must should"),
    polite=_any(
        """
        can could would you please tell me us i' d i we want to need know like also and so ok okay hello hi exactly show
        give say
        """
    ),
    holds=_EN_HOLDS,
    lead=_any(
        """
        in_which where who that which there also currently actually do(?!_not) does(?!_not) did(?!_not) are(?!_not)
        is(?!_not) was(?!_not) were(?!_not) be been being had with an? any some the we you i
        """
    ),
    absent=(
        rf"(?:(?:do|does|did) not|don't|doesn't|didn't|never|fails? to|omits? to) {_EN_HOLDS}"
        rf"|(?:{_EN_HOLDS}|with|is there|are there|there is|there are) no\b|lack(?:s|ing)?\b|without\b"
    ),
    trailing=(
        r"(?:in|within|from) (?:the|this|our|my|these|all the) (?:\w+ )?(?:collection|archive|corpus|folder|data ?room"
        r"|library|system)|(?:are|is) there|do (?:we|you|i) have|please"
    ),
)

_ES_HOLDS = _any(
    """
    tienen? tengan? contienen? contengan? incluy(?:e|en|a|an) hay haya existen? figuran? aparecen? aparezcan?
    (?:se_)?recogen? (?:se_)?preven? (?:se_)?contemplan? (?:se_)?establecen? (?:se_)?incluyen? (?:se_)?mencionan?(?:_a)?
    mencionen(?:_a)? (?:se_)?hablan?_del? se_refieren?_al? tratan?_(?:del?|sobre)
    """
)
_ES_HANDS = _any("present aport entreg adjunt acompa llev envi facilit remit conserv guard firm lleva")
SPANISH = Cues(
    language="es",
    documents=_nouns("documento/documentos archivo/archivos fichero/ficheros"),
    papers=_nouns(
        """
        informe/informes carta/cartas factura/facturas correo/correos email/emails sentencia/sentencias
        resolucion/resoluciones decreto/decretos ordenanza/ordenanzas acta/actas expediente/expedientes pliego/pliegos
        recibo/recibos albaran/albaranes
        """
    ),
    records=_nouns(
        """
        contrato/contratos acuerdo/acuerdos convenio/convenios poliza/polizas politica/politicas enmienda/enmiendas
        adenda/adendas escritura/escrituras arrendamiento/arrendamientos nda/ndas
        """
    ),
    laws=_nouns("ley/leyes reglamento/reglamentos norma/normas normativa/normativas"),
    modifiers="",
    after_single="",
    determiners=_any(
        "de los las estos estas esos esas nuestros nuestras mis sus otros otras nuevos nuevas todos todas"
    ),
    prepositions=_any("en de con por para segun a entre"),
    before_all=_any("en de con por para segun a entre sobre"),
    how_many=_any("cuantos cuantas"),
    number_of=_any("que_numero_de qué_numero_de cual_es_el_numero_de cuenta(?=_los|_las)"),
    which=_any("qué cual(?:es)?(?:_son)? (?:(?<=^)|(?<=^en_)|(?<=^con_)|(?<=dime_)|(?<=saber_)|(?<=decirme_))que"),
    list_verbs=(
        _any(
            """
            enumer[ae] listar? enumerar nombra indi(?:ca|que) senala identifica muestra muestrame encuentra busca dame
            dime deme extrae haz hazme quiero necesito
            """
        )
        + r"(?: (?:una|la) lista(?: completa)?)?"
    ),
    every=_any("tod[oa]s cada_un[oa] cada"),
    definite="(?:de )?(?:los|las|estos|estas|nuestros|nuestras)",
    list_all=(
        _any(
            """
            enumer[ae] lista listar identifica encuentra busca dame deme dime muestra muestrame extrae indica senala
            recopila haz hazme cuales_son
            """
        )
        + r"(?: una lista (?:de|con))? (?:tod[oa]s|cada|todo lo)(?! (?:dia|semana|mes|año|ano|vez)\b)"
    ),
    whole=_any("tod[ao]_(?:la|el)_(?:coleccion|corpus|archivo|carpeta|documentacion)"),
    governs=_any("(?:se_)?rige (?:se_)?aplic (?:es|son)_aplicable"),
    handed_over=(
        r"(?:se )?(?:necesit|hacen? falta|se requier|se exig|son necesari)"
        rf"|\b(?:hay que|deb\w+|t[ei]\w+ que|h\w+ de)\b(?: \S+){{0,6}}? {_ES_HANDS}"
    ),
    superlative=(
        r"(?:el|la|los|las|lo) (?:\w+ ){0,2}mas (?!de |que |favorecid)\w+|(?:el|la) (?:mayor|menor|mejor|peor)\b"
        r"|(?:es|sale|resulta|dura) (?:mas (?!de )\w+|mejor|peor)(?! que)\b|(?:antes|primero|mas tarde)$"
    ),
    compare=(
        r"\bcompar(?:a|ar|e|en|ame|alos|alas|ando|emos|acion|aciones|ativa)\b|\bse (?:diferencia|distingue)n?\b"
        r"|\b(?:contradiccion|contradice|incoherencia|discrepancia)"
        r"|(?:^|\b(?:qué|que|hay|son|es|alguna|explica|describe|indica|enumera|dime|dame|muestra|muestrame|senala) )"
        r"(?:(?:la|las|principales|una|alguna|hay) ){0,3}(?:diferencia|semejanza|similitud)"
    ),
    summarise=(
        r"(?:^|\b(?:favor|puedes|podrias|podeis|quiero que|me|y|,) )"
        r"(?:resum(?:a|eme|elo|elos|ela|elas|ir|irme|id)|sintetiza|sintetizar)\b"
        r"|(?:^|, |favor )resume (?:el|la|los|las|lo|este|esta|estos|estas|todo|toda|en|brevemente|mi|su|cada|un)\b"
        r"|(?:^|\b(?:haz|hazme|haga|dame|deme|quiero|necesito|escribe|redacta|prepara|elabora|hacer|hacerme|darme) )"
        r"(?:(?:un|el|breve|buen|corto) ){0,2}resumen\b|\bvision general\b|\bpuntos (?:principales|clave)\b"
    ),
    about_what=r"(?:de|sobre) (?:qué|que) (?:trata|tratan|va|van) {noun}",
    asking=_any("quien quienes que qué cual cuales cuando donde como cuanto cuanta cuantos cuantas deben?"),
    polite=_any(
        """
        quiero necesito saber dime dinos puedes podrias podrian decirme decir me gustaria por favor querria quisiera
        indica y hola di
        """
    ),
    holds=_ES_HOLDS,
    lead=_any(
        """
        en_(?:los|las)_que en_que que con una? unos unas el la los las algun alguna son(?!_no) es estan? fueron fue
        """
    ),
    absent=rf"no {_ES_HOLDS}(?: ning\w+)?|(?:{_ES_HOLDS} )?sin\b|carecen? de|carezcan? de",
    trailing=(
        r"(?:en|de) (?:la|el|esta|este|nuestra|nuestro|mi) (?:coleccion|archivo|corpus|carpeta|biblioteca|sistema)"
        r"|hay|tenemos|por favor"
    ),
)

_CA_HOLDS = _any(
    """
    tenen te tinguin? contenen conte continguin? inclou(?:en)? incloguin? hi_ha hi_hagi existeix(?:en)? figur(?:a|en)
    apareix(?:en)? (?:es_)?recull(?:en)? (?:es_)?preve(?:uen|u)? (?:es_)?contempl(?:a|en) (?:s'_)?esment(?:a|en)(?:_a)?
    (?:s'_)?inclou(?:en)? (?:s'_)?estableix(?:en)? (?:es_)?mencion(?:a|en)(?:_a)? (?:es_)?parl(?:a|en)_d(?:e|el|els|')
    es_refer(?:eix|eixen)_a tract(?:a|en)_(?:de|del|dels|d'|sobre)
    """
)
_CA_HANDS = _any("present aport lliur adjunt acompany port envi facilit trame conserv guard entreg sign")
CATALAN = Cues(
    language="ca",
    documents=_nouns("document/documents arxiu/arxius fitxer/fitxers"),
    papers=_nouns(
        """
        informe/informes carta/cartes factura/factures correu/correus email/emails sentencia/sentencies
        resolucio/resolucions decret/decrets ordenanca/ordenances acta/actes expedient/expedients plec/plecs
        rebut/rebuts
        """
    ),
    records=_nouns(
        """
        contracte/contractes acord/acords conveni/convenis polissa/polisses politica/politiques esmena/esmenes
        addenda/addendes escriptura/escriptures nda/ndas
        """
    ),
    laws=_nouns("llei/lleis reglament/reglaments norma/normes normativa/normatives"),
    modifiers="",
    after_single="",
    determiners=_any("de d' dels els les aquests aquestes nostres meus altres nous noves tots totes"),
    prepositions=_any("en a de d' amb per segons entre"),
    before_all=_any("en a de d' amb per segons entre sobre"),
    how_many=_any("quants quantes"),
    number_of=_any("quin_nombre quin_és_el_nombre quin_es_el_nombre compta(?=_els|_les)"),
    which=_any("quins?(?:_són)? quin(?:a|es)(?:_són)?"),
    list_verbs=(
        _any(
            """
            enumera llistar? anomena indica assenyala identifica mostra troba busca dona digues extreu fes vull
            necessito
            """
        )
        + r"(?: m| me)?(?: (?:una|la) llista| un llistat)?"
    ),
    every=_any("tots totes cadascun cadascuna cada_una? cada"),
    definite="(?:de |d' )?(?:els|les|dels|aquests|aquestes)",
    list_all=(
        _any(
            """
            enumera llista llistar identifica troba busca dona mostra digues extreu indica assenyala fes
            quin(?:s|es)_(?:són|son)
            """
        )
        + r"(?: m| me)?(?: una llista (?:de|amb))? (?:tots|totes|cada|tot el que)"
        r"(?! (?:dia|setmana|mes|any|cop|vegada)\b)"
    ),
    whole=_any("tot(?:a_la|_el|_l')_(?:col·leccio|corpus|arxiu|carpeta|documentacio)"),
    governs=_any("regeix (?:s'_)?aplic (?:és|es|són)_aplicable"),
    handed_over=(
        r"(?:es )?(?:necessit|calen|fan? falta|es requer|s' exig|són necess)"
        rf"|\b(?:cal|deu\w*|h\w+ (?:de|d'))(?: \S+){{0,6}}? {_CA_HANDS}"
    ),
    superlative=(
        r"(?:el|la|els|les) (?:\w+ ){0,2}més (?!de |d' |que |afavorid)\w+|(?:el|la) (?:major|menor|millor|pitjor)\b"
        r"|(?:és|surt|dura) (?:més (?!de |d' )\w+|millor|pitjor)(?! que)\b|(?:abans|primer|més tard)$"
    ),
    compare=(
        r"\bcompar(?:a|ar|eu|em|ant|acio|acions|ativa)\b|\bes (?:diferenci|distinge)\w+"
        r"|\b(?:contradiccio|contradiu|incoherenci|discrepanci)"
        r"|(?:^|\b(?:quin(?:a|es)|hi ha|són|son|és|alguna|explica|descriu|indica|enumera|digues|mostra|mostra m"
        r"|dona m) )(?:(?:la|les|principals|una|alguna|hi ha) ){0,3}(?:diferenci|semblanc|similitud)"
    ),
    summarise=(
        r"\bresum(?:eix|iu|ir)\b|\bsintetitz(?:a|ar)\b"
        r"|(?:^|\b(?:fes|feu|fer|dona|vull|necessito|escriu|prepara|redacta) )"
        r"(?:(?:m|me|ne|nos|un|el|breu|bon) ){0,3}resum\b|\bvisio general\b|\bpunts (?:principals|clau)\b"
    ),
    about_what=r"(?:de|sobre) que (?:tracta|tracten|va|van) {noun}",
    asking=_any("qui que quin quina quins quines quan on com quant quanta quants quantes deuen"),
    polite=_any(
        """
        vull necessito saber digues m m' em me pots podries dir si us plau agradaria voldria indica i hola
        """
    ),
    holds=_CA_HOLDS,
    lead=_any(
        """
        en_(?:els|les)_quals? en_que que on amb una? uns unes el la els les l' algun alguna són és son estan? han?
        """
    ),
    absent=rf"no {_CA_HOLDS}(?: cap)?|(?:{_CA_HOLDS} )?sense\b",
    trailing=(
        r"(?:a|en|de) (?:la|el|l'|aquesta|aquest|nostra|nostre|meva) (?:col·leccio|arxiu|corpus|carpeta"
        r"|biblioteca|sistema)|hi ha|tenim|si us plau"
    ),
)
LANGUAGES = (ENGLISH, SPANISH, CATALAN)
